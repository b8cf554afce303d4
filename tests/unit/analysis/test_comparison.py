"""Any method against any: the statistics do not know which of them is STAPO."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import PROBLEMS, write_score

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import render
from stapo.analysis.notes import comparison_text, mark
from stapo.analysis.rows import AVERAGE
from stapo.study import StudyError, parse_study

DECODING = "t1.0-p1.0"
SAMPLES = 4
WITHOUT = "Avg without AIME24"
CHANGED = 10
"""Problems of chain-2 of which the method of one's own answers one more of four samples."""


def parsed(raw, run, compare=None, benchmarks=("chain-2", "linear-equation"), methods=None):
    raw |= {"name": "demo", "methods": methods or {}, "compare": compare or {}}
    raw["run"] |= {"methods": run, "decodings": [DECODING], "benchmarks": list(benchmarks)}
    raw["benchmarks"] |= {name: {"samples": 10} for name in benchmarks if "aime" in name}
    return parse_study(raw)


def tabulated(study, root):
    for checkpoint in study.checkpoints():
        for benchmark in study.run.benchmarks:
            write_score(root, study, checkpoint, benchmark)
    return main_table(study, DECODING, read_scores(study, DECODING, root))


def answer(study, root, method, benchmark, solved):
    """Let a method solve `solved(problem)` of the samples to each problem."""
    path = root / paths.SCORES.format(
        study="demo", checkpoint=f"tiny/{method}/seed0", decoding=DECODING, benchmark=benchmark
    )
    table = pq.read_table(path)
    places = zip(table["problem"].to_pylist(), table["sample"].to_pylist(), strict=True)
    column = pa.array([sample < solved(problem) for problem, sample in places])
    pq.write_table(
        table.set_column(table.schema.get_field_index("correct"), "correct", column), path
    )


@pytest.fixture
def known(raw_study, tmp_path):
    """Two methods of one's own; `mine` solves 10 of 160 responses more than `theirs`."""
    methods = {"mine": {"base": "justrl", "title": "Mine"}, "theirs": {"base": "grpo"}}
    compare = {"target": "mine", "baselines": ["theirs"]}
    study = parsed(raw_study, ["theirs", "mine"], compare, methods=methods)
    tabulated(study, tmp_path)
    for method in study.run.methods:
        more = method == "mine"
        answer(study, tmp_path, method, "chain-2", lambda p, m=more: 2 + (m and p < CHANGED))
        answer(study, tmp_path, method, "linear-equation", lambda p: p % 4)
    return study, main_table(study, DECODING, read_scores(study, DECODING, tmp_path))


def test_a_method_of_ones_own_has_the_known_difference_and_its_interval(known):
    _, table = known
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
    # 10,000 resamples know a standard deviation to 0.7 %; four times that.
    assert difference.detectable == pytest.approx(2.8 * unit * np.sqrt(20 / 4), rel=0.03)
    # All ten gaps have one sign: 2 of 1024 flips are as extreme; three standard errors of 10,000 draws.
    assert found.adjusted_p == pytest.approx(2 / 2**CHANGED, abs=0.0014)
    headline = table.headlines["mine"]
    theirs = table.values["tiny"]["theirs"]
    assert headline.gains == {"tiny": pytest.approx(100 * (6.25 / theirs))}
    assert headline.interval.low < headline.mean < headline.interval.high
    assert {row.method: row.marks for row in table.rows} == {"base": "", "theirs": "†", "mine": ""}


def test_several_targets_are_one_family_and_have_a_mark_each(raw_study, tmp_path):
    methods = {"mine": {"base": "justrl", "title": "Mine"}}
    compare = {"target": ["mine", "stapo"], "baselines": ["grpo", "stapo"]}
    study = parsed(raw_study, ["grpo", "stapo", "mine"], compare, methods=methods)
    table = tabulated(study, tmp_path)
    pairs = [(c.target, c.baseline) for c in table.comparisons]
    assert pairs == [("mine", "grpo"), ("mine", "stapo"), ("stapo", "grpo")]
    # Holm: the smallest of three p-values is multiplied by three.
    smallest = min(c.difference.p_value for c in table.comparisons)
    assert min(c.adjusted_p for c in table.comparisons) == pytest.approx(3 * smallest)
    assert list(table.headlines) == ["mine", "stapo"]
    assert table.headlines["stapo"].baselines == {"tiny": "grpo"}
    marks = {row.method: row.marks for row in table.rows}
    assert marks["stapo"] == mark(0)  # By Mine alone: nothing differs from itself.
    assert marks["grpo"] == mark(1)
    assert [note[0] for note in table.notes if "differs from this one" in note] == ["†", "‡"]
    assert r"$^{\ddagger}$" in render(table, "tex")
    assert len({mark(i) for i in range(12)}) == 12


def test_by_default_each_revision_of_stapo_is_compared_with_the_papers_baselines(raw_study):
    study = parsed(raw_study, ["grpo", "stapo", "stapo-v2", "justrl"])
    assert study.compared() == (["stapo", "stapo-v2"], ["grpo", "justrl"])
    study = parsed(raw_study, ["grpo", "stapo", "stapo-v2"], {"baselines": ["stapo"]})
    assert study.compared() == (["stapo-v2"], ["stapo"])
    study = parsed(raw_study, ["grpo", "justrl"], {"target": "justrl"})
    assert study.compared() == (["justrl"], ["grpo"])


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        (
            {"target": "mine"},
            "compare.target: unknown name 'mine'; known in run.methods: grpo, stapo",
        ),
        ({"baselines": ["x", "y"]}, "compare.baselines: unknown name 'x'; known in run.methods"),
        ({"target": ["stapo", "stapo"]}, "compare.target: 'stapo' is listed twice; remove one"),
        (
            {"target": "grpo", "baselines": ["grpo"]},
            "compare.baselines: 'grpo' has no baseline but itself; add another",
        ),
        ({"target": []}, "compare.target: List should have at least 1 item"),
        ({"baselines": "grpo"}, "compare.baselines: Input should be a valid list"),
        ({"targets": "grpo"}, "compare.targets: unknown key; remove it"),
    ],
)
def test_what_cannot_be_compared_is_refused(raw_study, compare, expected):
    with pytest.raises(StudyError) as caught:
        parsed(raw_study, ["grpo", "stapo"], compare)
    assert any(line.startswith(expected) for line in caught.value.errors), caught.value.errors


def test_a_comparison_with_nothing_is_refused(raw_study):
    with pytest.raises(
        StudyError, match="none of grpo, 20-entropy, justrl beside the target; name baselines"
    ):
        parsed(raw_study, ["stapo", "random"], {"target": "random"})
    with pytest.raises(StudyError, match="has none of stapo, stapo-v2; name a target"):
        parsed(raw_study, ["grpo", "random"], {"baselines": ["random"]})


def test_an_average_without_aime24_stands_beside_avg(raw_study, tmp_path):
    names = ("aime24", "chain-2", "chain-3")
    study = parsed(raw_study, ["grpo", "stapo"], benchmarks=names)
    table = tabulated(study, tmp_path)
    assert table.averages == {AVERAGE: [*names], WITHOUT: [*names[1:]]}
    for row in table.rows:
        values = [row.cells[name].value for name in names]
        assert row.cells[AVERAGE].value == pytest.approx(np.mean(values))
        assert row.cells[WITHOUT].value == pytest.approx(np.mean(values[1:]))
        assert row.cells[WITHOUT].low < row.cells[WITHOUT].value < row.cells[WITHOUT].high
    ours, theirs = (
        {r.method: r.cells[WITHOUT].value for r in table.rows}[m] for m in ("stapo", "grpo")
    )
    (found,) = table.comparisons
    without = found.further["without AIME24"]
    assert without.value == pytest.approx((ours - theirs) / 100)
    assert without.low < without.value < without.high
    assert f"; without AIME24 {ours - theirs:+.2f} [" in comparison_text(table, found)
    header = next(line for line in render(table, "md").splitlines() if line.startswith("| Size"))
    assert header.endswith("| Avg | Avg without AIME24 |")
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert {r["problems"] for r in rows if r["benchmark"] == WITHOUT} == {str(2 * PROBLEMS)}
    assert {r["problems"] for r in rows if r["benchmark"] == AVERAGE} == {str(3 * PROBLEMS)}
