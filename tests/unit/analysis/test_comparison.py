"""Any method against any: the statistics do not know which of them is STAPO."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic import PROBLEMS, write_score

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import print_table, render
from stapo.analysis.notes import comparison_text, headline_texts, mark
from stapo.analysis.rows import AVERAGE
from stapo.study import StudyError, identity, merge, parse_study
from stapo.study.reading import published_content
from stapo.study.resolved import read_resolved, resolved_path, write_resolved

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


def test_every_format_names_the_methods_by_their_titles(known):
    _, table = known
    (line,) = headline_texts(table)
    assert line.startswith("Relative gain of Mine's Avg over the strongest baseline's")
    assert comparison_text(table, table.comparisons[0]).startswith("tiny: Mine minus theirs +6.25")
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=200))
    for text in (render(table, "md"), render(table, "tex"), stream.getvalue()):
        assert "STAPO" not in text
        assert "of Mine's Avg" in text.replace("\n", " ")
    assert any("Avg of Mine differs from this one" in note for note in table.notes)
    assert r"$\dagger$ Avg of Mine differs" in render(table, "tex")


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


def test_a_study_without_targets_has_neither_differences_nor_marks(raw_study, tmp_path):
    table = tabulated(parsed(raw_study, ["grpo", "justrl"]), tmp_path)
    assert (table.comparisons, table.headlines) == ([], {})
    assert headline_texts(table) == [
        "No headline: no method of this study is compared with others."
    ]
    assert not any("Holm" in note or "†" in note for note in table.notes)


def test_a_study_compares_nothing_where_it_says_so(raw_study, tmp_path):
    """Also if the study that it extends names a comparison, and for a job that reads the resolved study."""
    parsed(raw_study, ["grpo", "stapo"], {"target": "stapo", "baselines": ["grpo"]})
    study = parse_study(merge(raw_study, {"compare": None}))
    assert study.compared() == ([], [])
    write_resolved(study, tmp_path)
    job = read_resolved(tmp_path / resolved_path(study))
    assert job == study == parse_study(published_content(study))
    assert tabulated(job, tmp_path).comparisons == []


def test_a_mark_is_explained_only_where_a_row_has_it(raw_study, tmp_path):
    study = parsed(raw_study, ["justrl", "stapo"])
    tabulated(study, tmp_path)
    for method in study.run.methods:
        for benchmark in study.run.benchmarks:
            answer(study, tmp_path, method, benchmark, lambda p: p % 4)
    table = main_table(study, DECODING, read_scores(study, DECODING, tmp_path))
    assert table.comparisons
    assert not any(row.marks for row in table.rows)
    assert not any("differs from this one" in note for note in table.notes)


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        ({"target": "mine"}, "compare.target: 'mine' is not in run.methods (grpo, stapo)"),
        ({"baselines": ["x", "y"]}, "compare.baselines: 'x' is not in run.methods"),
        ({"target": ["stapo", "stapo"]}, "compare.target: 'stapo' is listed twice; remove one"),
        (
            {"target": "grpo", "baselines": ["grpo"]},
            "compare.baselines: 'grpo' has no baseline but itself; add another",
        ),
        ({"target": []}, "compare.target: List should have at least 1 item"),
        ({"baselines": "grpo"}, "compare.baselines: Input should be a valid list"),
        ({"targets": "grpo"}, "compare.targets: unknown key; did you mean target?"),
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


def test_what_is_compared_determines_tables_and_no_score(raw_study):
    one = parsed(raw_study, ["grpo", "stapo"])
    other = parsed(raw_study, ["grpo", "stapo"], {"target": "grpo", "baselines": ["stapo"]})
    assert identity.score_fingerprints(one, DECODING) == identity.score_fingerprints(
        other, DECODING
    )
    assert identity.table_fingerprint(one, DECODING) != identity.table_fingerprint(other, DECODING)
    said = parsed(raw_study, ["grpo", "stapo"], {"target": ["stapo"], "baselines": ["grpo"]})
    assert identity.table_fingerprint(said, DECODING) == identity.table_fingerprint(one, DECODING)


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


@pytest.mark.parametrize("names", [("aime24",), ("chain-2", "chain-3")])
def test_no_second_average_where_it_would_be_the_first_or_none(raw_study, tmp_path, names):
    table = tabulated(parsed(raw_study, ["grpo", "stapo"], benchmarks=names), tmp_path)
    assert table.averages == {AVERAGE: [*names]}
    assert WITHOUT not in table.rows[0].cells
    assert table.comparisons[0].further == {}
