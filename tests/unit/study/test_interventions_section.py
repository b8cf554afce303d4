"""The section `interventions` of a study: its errors, and what depends on it."""

from typing import Any

import pytest

from stapo import paths
from stapo.canonical import canonical, leaves
from stapo.exhibits import FIGURES
from stapo.operations.current import outputs
from stapo.operations.limits import Cluster, intervene_minutes
from stapo.operations.plan import machine, plan
from stapo.study import Checkpoint, Study, StudyError, identity, parse_study, settings

JUSTRL = "tiny/justrl/seed0"


def study_with(raw: dict[str, Any], **section: Any) -> Study:
    return parse_study({**raw, "interventions": section})


def test_a_study_asks_for_none_by_default_and_nothing_else_depends_on_them(raw_study):
    plain, asking = parse_study(raw_study), study_with(raw_study, checkpoints=[JUSTRL])
    assert "interventions" not in plain.model_dump()
    assert plain.intervened() == []
    assert asking.intervened() == [Checkpoint("tiny", "justrl", 0)]
    for checkpoint in plain.checkpoints():
        same = [identity.checkpoint_fingerprint(one, checkpoint) for one in (plain, asking)]
        assert same[0] == same[1]
    for of in (identity.tables_fingerprint, identity.metrics_fingerprint):
        assert of(plain) == of(asking)
    for name, figure in FIGURES.items():
        own = identity.exhibit_fingerprint(plain, figure)
        changed = own != identity.exhibit_fingerprint(asking, figure)
        assert changed == ("interventions" in figure.sources), name
    assert identity.report_fingerprint(plain) != identity.report_fingerprint(asking)


def test_their_fingerprint_has_what_they_depend_on(raw_study):
    raw_study["training"]["evaluate_every"] = 48
    of = Checkpoint("tiny", "justrl", 0)

    def fingerprint(**section: Any) -> str:
        return identity.intervention_fingerprint(study_with(raw_study, **section), of)

    first = fingerprint(checkpoints=[JUSTRL])
    assert first == fingerprint(checkpoints=[JUSTRL, "tiny/base"])
    changes: list[dict[str, Any]] = [
        {"prompts": 16},
        {"repetitions": 9},
        {"seed": 1},
        {"method": "full-mask"},
    ]
    assert first not in {fingerprint(checkpoints=[JUSTRL], **change) for change in changes}
    for key, value, same in [
        ("learning_rate", 1e-5, False), ("steps", 192, False), ("group_size", 4, False),
        ("checkpoint_every", 7, True), ("token_records_mb", 1, True),
    ]:  # fmt: skip
        changed = {**raw_study, "training": {**raw_study["training"], key: value}}
        found = identity.intervention_fingerprint(study_with(changed), of)
        assert (found == first) == same, key
    # At a base model, nothing depends on how long a training is.
    base = [
        identity.intervention_fingerprint(
            study_with({**raw_study, "training": {**raw_study["training"], "steps": steps}}),
            Checkpoint("tiny"),
        )
        for steps in (96, 192)
    ]
    assert base[0] == base[1]


def test_settings_of_the_job_are_those_of_its_fingerprint(raw_study):
    study = study_with(raw_study, checkpoints=[JUSTRL])
    checkpoint = study.intervened()[0]
    config = identity.intervention_config(study, checkpoint)
    del config["checkpoint"]
    found = settings.intervention_settings(study, checkpoint)
    assert found == {k: f"{k}={canonical(v)}" for k, v in leaves(config).items()}
    assert found["interventions.repetitions"] == "interventions.repetitions=8"
    assert found["method.selection_args.tau_p"] == "method.selection_args.tau_p=0.002"


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ({"checkpoints": ["x"]}, "'x': expected size/base, size/method/seedK or"),
        ({"checkpoints": ["big/base"]}, "'big/base': unknown size; known: tiny"),
        ({"checkpoints": ["tiny/nope/seed0"]}, "unknown method; known: grpo, 20-entropy"),
        ({"checkpoints": ["tiny/justrl/seed7"]}, "unknown seed; known: 0"),
        ({"checkpoints": ["tiny/justrl/seed0/step7"]}, "no weights of this step are kept"),
        ({"checkpoints": ["tiny/justrl/seed0/step96"]}, "no weights of this step are kept"),
        ({"checkpoints": [JUSTRL, JUSTRL]}, f"{JUSTRL!r} is listed twice; remove one"),
        ({"method": "nope"}, "unknown method 'nope'"),
        ({"method": "justrl"}, "justrl silences no candidates; choose from stapo"),
        ({"method": "20-entropy"}, "20-entropy silences no candidates"),
        ({"repetitions": 1}, "interventions.repetitions"),
        ({"prompts": 0}, "interventions.prompts"),
        ({"nope": 1}, "interventions.nope: unknown key"),
        ({"checkpoints": "tiny/base"}, "interventions.checkpoints"),
    ],
)
def test_errors_are_named(raw_study, section, error):
    raw_study["training"]["evaluate_every"] = 48
    with pytest.raises(StudyError) as caught:
        study_with(raw_study, **section)
    assert any(error in line for line in caught.value.errors), caught.value.errors


def test_all_errors_are_reported_together(raw_study):
    with pytest.raises(StudyError) as caught:
        study_with(raw_study, checkpoints=["x", "big/base"], method="grpo", seed=-1)
    assert len(caught.value.errors) == 4


def test_a_method_with_a_kl_term_is_refused(raw_study):
    for changes in (
        {"all_methods": {"kl_coefficient": 0.1}},
        {"methods": {"stapo": {"kl_coefficient": 1}}},
    ):
        with pytest.raises(StudyError, match="has a KL term"):
            study_with({**raw_study, **changes}, checkpoints=[JUSTRL])
    own = {"all_methods": {"kl_coefficient": 0.1}, "methods": {"stapo": {"kl_coefficient": 0}}}
    study_with({**raw_study, **own}, checkpoints=[JUSTRL])


def test_steps_that_are_kept_can_be_examined(raw_study):
    raw_study["training"]["evaluate_every"] = 48
    raw_study["evaluation"]["curve"] = {
        "every": 32, "benchmarks": ["chain-2"], "decoding": "t1.0-p1.0",
    }  # fmt: skip
    names = [f"{JUSTRL}/step{step}" for step in (32, 48, 64)]
    found = study_with(raw_study, checkpoints=names).intervened()
    assert [one.step for one in found] == [32, 48, 64]


def test_plan_and_status_know_what_is_done(raw_study, tmp_path):
    study = study_with(raw_study, checkpoints=[JUSTRL, "tiny/base"])
    cpu = machine("cpu")

    def planned() -> tuple[int, int, float]:
        (row,) = [row for row in plan(study, cpu, tmp_path) if row.stage == "intervene"]
        return row.jobs, row.done, row.hours

    jobs, done, hours = planned()
    assert (jobs, done) == (2, 0)
    assert outputs(study, tmp_path)["interventions"] == "2 of 2 missing"
    for suffix, text in (("parquet", "PAR1"), ("json", '{"fingerprint": "other"}')):
        path = tmp_path / paths.INTERVENTION.format(
            study=study.name, checkpoint=JUSTRL, suffix=suffix
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = outputs(study, tmp_path)["interventions"]
    assert found == "1 of 2 missing, 1 of 2 outdated"
    made_by = identity.intervention_fingerprint(study, study.intervened()[0])
    path.write_text(f'{{"fingerprint": "{made_by}"}}')
    assert outputs(study, tmp_path)["interventions"] == "1 of 2 missing"
    assert planned() == (2, 1, pytest.approx(hours / 2))
    assert intervene_minutes(study, Cluster(), study.intervened()[0]) >= 30
