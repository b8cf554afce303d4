"""The section `interventions` of a study: its errors, and what depends on it."""

from typing import Any

from stapo.exhibits import FIGURES
from stapo.study import Checkpoint, Study, identity, parse_study

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


def test_steps_that_are_kept_can_be_examined(raw_study):
    raw_study["training"]["evaluate_every"] = 48
    raw_study["evaluation"]["curve"] = {
        "every": 32, "benchmarks": ["chain-2"], "decoding": "t1.0-p1.0",
    }  # fmt: skip
    names = [f"{JUSTRL}/step{step}" for step in (32, 48, 64)]
    found = study_with(raw_study, checkpoints=names).intervened()
    assert [one.step for one in found] == [32, 48, 64]
