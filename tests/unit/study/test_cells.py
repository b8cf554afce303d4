"""Which cells a study evaluates: everything of some checkpoints, and of others what the curve asks for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import SMOKE

import stapo.study.checks
from stapo import paths
from stapo.canonical import fingerprint
from stapo.study import Checkpoint, StudyError, TrainingRun, identity, merge, parse_study

CURVE = {"every": 20, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}


@pytest.fixture
def raw(raw_study):
    raw_study["training"]["evaluate_every"] = 40
    raw_study["run"] |= {"methods": ["stapo"], "benchmarks": ["chain-2", "chain-3"]}
    raw_study["evaluation"]["curve"] = CURVE
    return raw_study


def without_curve(raw):
    return parse_study(merge(raw, {"evaluation": {"curve": None}}))


def test_a_checkpoint_of_the_curve_answers_its_benchmarks_under_its_decoding(raw):
    study = parse_study(raw)
    steps = {c: c.step for c in study.checkpoints() if c.step is not None}
    assert list(steps.values()) == study.kept_steps() == [20, 40, 60, 80]
    assert [step for c, step in steps.items() if study.is_full(c)] == [40, 80]
    own = TrainingRun("tiny", "stapo", 0)
    assert study.answered(Checkpoint.of(own, 20), "t0.7-p0.9") == ["chain-3"]
    assert study.answered(Checkpoint.of(own, 20), "t1.0-p1.0") == []
    for checkpoint in (Checkpoint("tiny"), Checkpoint.of(own, 40), Checkpoint.of(own)):
        for decoding in study.run.decodings:
            assert study.answered(checkpoint, decoding) == ["chain-2", "chain-3"]
    before = without_curve(raw)
    assert list(study.cells("t1.0-p1.0")) == list(before.cells("t1.0-p1.0"))
    more = {*study.cells("t0.7-p0.9")} - {*before.cells("t0.7-p0.9")}
    assert more == {(Checkpoint.of(own, step), "chain-3") for step in (20, 60)}
    assert list(study.table_cells("t0.7-p0.9")) == list(before.cells("t0.7-p0.9"))
    found = {*paths.published_paths(study)} - {*paths.published_paths(before)}
    assert len(found) == 2 * len(more)


def test_no_weights_scores_or_tables_depend_on_the_curve(raw):
    study, before = parse_study(raw), without_curve(raw)
    for checkpoint in before.checkpoints():
        config = identity.checkpoint_config(study, checkpoint)
        assert fingerprint(config) == identity.checkpoint_fingerprint(before, checkpoint)
    for decoding in study.run.decodings:
        assert identity.score_fingerprints(study, decoding) == identity.score_fingerprints(
            before, decoding
        )
        assert identity.table_fingerprint(study, decoding) == identity.table_fingerprint(
            before, decoding
        )
    # A step of the curve that answers everything later keeps its scores.
    later = parse_study(merge(raw, {"training": {"evaluate_every": 20}}))
    cell = (Checkpoint("tiny", "stapo", 0, 20), "t0.7-p0.9", "chain-3")
    assert identity.score_fingerprint(later, *cell) == identity.score_fingerprint(study, *cell)
    assert identity.accuracy_fingerprint(study) != identity.accuracy_fingerprint(before)
    assert identity.report_fingerprint(study) != identity.report_fingerprint(before)


def test_a_method_named_as_a_step_is_none(raw):
    raw["methods"] = {"step5": {"base": "stapo"}}
    raw["run"]["methods"] = ["step5"]
    study = parse_study(raw)
    assert study.is_full(Checkpoint.parse("tiny/step5/seed0"))
    assert not study.is_full(Checkpoint.parse("tiny/step5/seed0/step20"))


@settings(max_examples=60, deadline=None)
@given(
    steps=st.sampled_from([4, 12, 96]),
    every=st.none() | st.integers(1, 100),
    curve=st.integers(1, 100),
)
def test_the_cells_that_are_allowed_are_those_that_are_listed(steps, every, curve):
    changes = {
        "training": {"steps": steps, "evaluate_every": every},
        "evaluation": {"curve": {**CURVE, "every": curve}},
    }
    raw = merge(SMOKE, changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stapo.study.checks, "MAX_CELLS", 10**9)
        study = parse_study(raw)
        count = sum(1 for decoding in study.run.decodings for _ in study.cells(decoding))
        patch.setattr(stapo.study.checks, "MAX_CELLS", count)
        parse_study(raw)
        patch.setattr(stapo.study.checks, "MAX_CELLS", count - 1)
        with pytest.raises(StudyError, match=f"run: {count} score files"):
            parse_study(raw)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {"benchmarks": ["chain-4", "chain-3"]},
            [
                "evaluation.curve.benchmarks: 'chain-4' is neither in run.benchmarks nor in "
                "evaluation.development; add it, or set curve: null"
            ],
        ),
        (
            {"decoding": "t2.0"},
            [
                "evaluation.curve.decoding: 't2.0' is not in run.decodings; add it, or set "
                "curve: null"
            ],
        ),
        (
            {"benchmarks": ["chain-3", "chain-3"]},
            ["evaluation.curve.benchmarks: 'chain-3' is listed twice; remove one"],
        ),
        ({"every": 0}, ["evaluation.curve.every: "]),
        ({"benchmarks": []}, ["evaluation.curve.benchmarks: "]),
        ({"step": 1}, ["evaluation.curve.step: "]),
    ],
)
def test_a_curve_that_cannot_be_drawn_is_refused(raw, change, lines):
    raw["evaluation"]["curve"] = {**CURVE, **change}
    with pytest.raises(StudyError) as caught:
        parse_study(raw)
    assert len(caught.value.errors) == len(lines)
    for error, line in zip(caught.value.errors, lines, strict=True):
        assert error.startswith(line)


def test_a_curve_may_be_of_development_benchmarks(raw):
    raw["evaluation"] |= {"development": ["chain-4"], "curve": {**CURVE, "benchmarks": ["chain-4"]}}
    study = parse_study(raw)
    assert study.answered(Checkpoint("tiny", "stapo", 0, 20), CURVE["decoding"]) == ["chain-4"]
