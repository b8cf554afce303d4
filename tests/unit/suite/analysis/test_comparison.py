"""Any method against any, and any checkpoint: the statistics do not know which of them is STAPO."""

import csv
from itertools import product

import pytest
from studies import outputs
from synthetic import PROBLEMS, rewrite, tabulated, write_score, write_scores

from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.values import COLUMNS, STRONGEST, values_of, write_values
from stapo.suite.study import parse_study

DECODING = "t1.0-p1.0"
SAMPLES = 4
CHANGED = 10
"""Problems of chain-2 of which the method of one's own answers one more of four samples."""
MINE = {"mine": {"base": "justrl", "title": "Mine"}, "theirs": {"base": "grpo"}}


def parsed(raw, run, compare=None):
    raw |= {"name": "demo", "methods": MINE if "mine" in run else {}, "compare": compare or {}}
    tests = ["chain-2", "linear-equation"]
    raw["run"] |= {"methods": run, "decodings": [DECODING], "benchmarks": tests}
    return parse_study(raw)


def answer(root, checkpoint, benchmark, solved):
    path = root / paths.SCORES.format(
        study="demo", checkpoint=checkpoint, decoding=DECODING, benchmark=benchmark
    )
    rewrite(path, lambda row: {"correct": row["sample"] < solved(row["problem"])})


def test_a_note_says_how_often_reward_and_grader_differ(raw_study, tmp_path):
    study = parsed(raw_study, ["theirs", "mine"])
    write_scores(tmp_path, study)
    assert not [note for note in tabulated(tmp_path, study).notes if "reward" in note]
    for benchmark, accepted in (("chain-2", 8), ("linear-equation", 12)):
        beside = {"accepted": accepted, "rewarded": 2}
        for seed in study.run.seeds:
            checkpoint = f"tiny/mine/seed{seed}"
            write_score(tmp_path, study, checkpoint, benchmark, differs_from_reward=beside)
    (note,) = [note for note in tabulated(tmp_path, study).notes if "reward" in note]
    assert note.endswith(
        "the training's reward (boxed) does not, and the reverse: Mine 12.50 % and 2.50 %."
    )


def test_a_method_of_ones_own_has_the_known_difference_and_its_interval(raw_study, tmp_path):
    """`mine` solves 10 of 160 responses more than `theirs`."""
    compare = {"target": "mine", "baselines": ["theirs"]}
    study = parsed(raw_study, ["theirs", "mine"], compare)
    write_scores(tmp_path, study)
    for method in study.run.methods:
        more = method == "mine"
        checkpoint = f"tiny/{method}/seed0"
        answer(tmp_path, checkpoint, "chain-2", lambda p, m=more: 2 + (m and p < CHANGED))
        answer(tmp_path, checkpoint, "linear-equation", lambda p: p % 4)
    table = tabulated(tmp_path, study)
    (found,) = table.comparisons
    assert (found.target, found.baseline) == ("mine", "theirs")
    # A quarter of a problem more on 10 of 20 problems of one benchmark of two.
    difference = found.difference
    assert difference.value == pytest.approx(CHANGED / SAMPLES / PROBLEMS / 2)
    assert difference.questions == pytest.approx(CHANGED / SAMPLES)
    # In a resample, Binomial(20, 1/2) of the problems drawn gain: its quantiles are 6 and 14. Exact, but for
    # the order of sums.
    unit = 1 / SAMPLES / PROBLEMS / 2
    assert difference.low == pytest.approx(6 * unit, abs=1e-12)
    assert difference.high == pytest.approx(14 * unit, abs=1e-12)
    # 2.8 standard errors would be 2.8 units * sqrt(20 / 4), 0.039, but fewer than 6 problems are no evidence:
    # Binomial(40, 0.1905) is at least 6 with a chance of 80 %.
    assert difference.detectable == pytest.approx(0.1905 / SAMPLES, rel=1e-3)
    # All ten gaps have one sign: 2 of 1024 flips are as extreme; two standard errors of 10,000 draws tell
    # it from 1 of 1024, of a test of one side.
    assert found.adjusted_p == pytest.approx(2 / 2**CHANGED, abs=0.0009)
    headline = table.headlines["mine"]
    theirs = table.rows[1].cells["Avg"].value
    assert headline.gains == {"tiny": pytest.approx(100 * (6.25 / theirs))}
    assert headline.mean.low < headline.mean.value < headline.mean.high
    # One draw of problems serves every row: the same answers do not differ, as far as 40 problems tell.
    answer(tmp_path, "tiny/mine/seed0", "chain-2", lambda p: 2)
    found = tabulated(tmp_path, study).comparisons[0].difference
    assert (found.value, found.p_value) == (0, 1)
    assert found.low == -found.high < 0
    assert found.detectable == difference.detectable


def test_several_targets_are_one_family(raw_study, tmp_path):
    compare = {"target": ["mine", "stapo"], "baselines": ["grpo", "stapo"]}
    study = parsed(raw_study, ["grpo", "stapo", "mine"], compare)
    write_scores(tmp_path, study)
    table = tabulated(tmp_path, study)
    pairs = [(c.target, c.baseline) for c in table.comparisons]
    assert pairs == [("mine", "grpo"), ("mine", "stapo"), ("stapo", "grpo")]
    # Holm: the smallest of three p-values is multiplied by three.
    smallest = min(c.difference.p_value for c in table.comparisons)
    assert min(c.adjusted_p for c in table.comparisons) == pytest.approx(3 * smallest)
    assert list(table.headlines) == ["mine", "stapo"]
    assert table.headlines["stapo"].baselines == {"tiny": "grpo"}


def test_baselines_that_answer_one_problem_in_one_half_give_no_headline(raw_study, tmp_path):
    """The half that chooses the strongest has the problem, so the other half measures 0."""
    compare = {"target": ["mine"], "baselines": ["grpo", "theirs"]}
    study = parsed(raw_study, ["grpo", "theirs", "mine"], compare)
    write_scores(tmp_path, study)
    for method, benchmark in product(("grpo", "theirs"), study.run.benchmarks):
        solved = (method, benchmark) == ("theirs", "chain-2")
        answer(tmp_path, f"tiny/{method}/seed0", benchmark, lambda p, s=solved: 4 * (s and p == 0))
    table = tabulated(tmp_path, study)
    assert table.rows[2].cells["Avg"].value > 0
    assert table.headlines == {"mine": None}


def chosen(rows, **columns):
    found = [r for r in rows if all(r[key] == value for key, value in columns.items())]
    assert found
    return found


def test_values_have_both_p_values(study, finished):
    path = write_values(Artefacts(study, finished))
    assert str(path.relative_to(finished)) == outputs(study, "evidence", "")[-1]
    rows = values_of(Artefacts(study, finished))
    with path.open() as stream:
        for text, row in zip(csv.DictReader(stream), rows, strict=True):
            assert list(text) == list(COLUMNS)
            assert float(text["value"]) == row["value"]
    table = tabulated(finished, study)
    found = chosen(rows, metric="difference of avg@N", benchmark="Avg")
    assert [row["reference"] for row in found] == ["grpo", "20-entropy", "justrl"]
    for row, one in zip(found, table.comparisons, strict=True):
        d = one.difference
        expected = [100 * d.value, 100 * d.low, 100 * d.high, d.p_value, one.adjusted_p]
        stated = [row[name] for name in ("value", "low", "high", "p_value", "p_holm")]
        assert stated == pytest.approx(expected, abs=1e-6)
    (overall,) = chosen(rows, metric="relative gain of avg@N", model=None)
    assert overall["reference"] == STRONGEST
    assert overall["value"] == pytest.approx(table.headlines["stapo"].mean.value, abs=1e-6)
    (at,) = chosen(rows, metric="relative gain of avg@N", model="tiny")
    assert at["value"] == pytest.approx(table.headlines["stapo"].gains["tiny"], abs=1e-6)
