"""Which cells a study evaluates: everything of some checkpoints, and of others what the curve asks for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import SMOKE

import stapo.study.checks
from stapo import paths
from stapo.canonical import fingerprint
from stapo.study import StudyError, merge, parse_study

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
    steps = {c: int(c.rpartition("/step")[2]) for c in study.checkpoints() if "/step" in c}
    assert list(steps.values()) == study.kept_steps() == [20, 40, 60, 80]
    assert [step for c, step in steps.items() if study.is_full(c)] == [40, 80]
    own = "tiny/stapo/seed0"
    assert study.answered(f"{own}/step20", "t0.7-p0.9") == ["chain-3"]
    assert study.answered(f"{own}/step20", "t1.0-p1.0") == []
    for checkpoint in ("tiny/base", f"{own}/step40", own):
        for decoding in study.run.decodings:
            assert study.answered(checkpoint, decoding) == ["chain-2", "chain-3"]
    before = without_curve(raw)
    assert list(study.cells("t1.0-p1.0")) == list(before.cells("t1.0-p1.0"))
    more = {*study.cells("t0.7-p0.9")} - {*before.cells("t0.7-p0.9")}
    assert more == {(f"{own}/step{step}", "chain-3") for step in (20, 60)}
    assert list(study.table_cells("t0.7-p0.9")) == list(before.cells("t0.7-p0.9"))
    found = {*paths.published_paths(study)} - {*paths.published_paths(before)}
    assert len(found) == 2 * len(more)


def test_no_weights_scores_or_tables_depend_on_the_curve(raw):
    study, before = parse_study(raw), without_curve(raw)
    for checkpoint in before.checkpoints():
        config = study.checkpoint_config(checkpoint)
        assert fingerprint(config) == fingerprint(before.checkpoint_config(checkpoint))
    for decoding in study.run.decodings:
        assert study.score_fingerprints(decoding) == before.score_fingerprints(decoding)
        assert study.table_fingerprint(decoding) == before.table_fingerprint(decoding)
    # A step of the curve that answers everything later keeps its scores.
    later = parse_study(merge(raw, {"training": {"evaluate_every": 20}}))
    cell = ("tiny/stapo/seed0/step20", "t0.7-p0.9", "chain-3")
    assert later.score_fingerprint(*cell) == study.score_fingerprint(*cell)
    assert study.accuracy_fingerprint() != before.accuracy_fingerprint()
    assert study.report_fingerprint() != before.report_fingerprint()


def test_a_method_named_as_a_step_is_none(raw):
    raw["methods"] = {"step5": {"base": "stapo"}}
    raw["run"]["methods"] = ["step5"]
    study = parse_study(raw)
    assert study.is_full("tiny/step5/seed0")
    assert not study.is_full("tiny/step5/seed0/step20")


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
                "evaluation.curve.benchmarks: 'chain-4' stands neither in run.benchmarks nor in "
                "evaluation.development; add it, or set curve: null"
            ],
        ),
        (
            {"decoding": "t2.0"},
            [
                "evaluation.curve.decoding: 't2.0' does not stand in run.decodings; add it, or set "
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
    assert study.answered("tiny/stapo/seed0/step20", CURVE["decoding"]) == ["chain-4"]
