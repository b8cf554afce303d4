"""Rows that are checkpoints from anywhere: every two are compared, all comparisons are one family."""

import io
from itertools import combinations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic import write_score

from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import checkpoint_table
from stapo.analysis.main_tables import print_table, render
from stapo.analysis.notes import comparison_text
from stapo.analysis.rows import AVERAGE
from stapo.evaluation.statistics import holm
from stapo.study import Checkpoint, parse_study

DECODING, BENCHMARKS = "t1.0-p1.0", ["chain-2", "linear-equation"]
SOLVED = {"one": 1, "two": 2, "three": 2}
"""Checkpoint -> samples of four that are right for each problem of chain-2; of the other benchmark, one."""


@pytest.fixture
def table(raw_study, tmp_path):
    raw_study["models"] |= dict.fromkeys(SOLVED, raw_study["models"]["tiny"])
    raw_study["run"] |= {
        "sizes": [*SOLVED], "decodings": [DECODING], "benchmarks": BENCHMARKS, "seeds": [0]
    }  # fmt: skip
    raw_study["name"] = "demo"
    study = parse_study(raw_study)
    study = study.model_copy(update={"run": study.run.model_copy(update={"methods": []})})
    for name, solved in SOLVED.items():
        for benchmark in BENCHMARKS:
            path = write_score(tmp_path, study, str(Checkpoint(name)), benchmark)
            scores = pq.read_table(path)
            most = solved if benchmark == "chain-2" else 1
            right = pa.array([sample < most for sample in scores["sample"].to_pylist()])
            place = scores.schema.get_field_index("correct")
            pq.write_table(scores.set_column(place, "correct", right), path)
    return checkpoint_table(study, DECODING, read_scores(study, DECODING, tmp_path))


def test_every_two_rows_are_compared_as_one_family(table):
    pairs = [(later, earlier) for earlier, later in combinations(SOLVED, 2)]
    assert [(c.target, c.baseline) for c in table.comparisons] == pairs
    assert [c.size for c in table.comparisons] == ["", "", ""]
    values = [c.difference.value for c in table.comparisons]
    # A quarter more of one of two benchmarks.
    assert values == pytest.approx([0.125, 0.125, 0.0])
    p_values = [c.difference.p_value for c in table.comparisons]
    assert p_values[0] == p_values[1] == pytest.approx(1e-4, rel=0.01)
    assert p_values[2] == 1
    assert [c.adjusted_p for c in table.comparisons] == holm(p_values)
    assert table.comparisons[0].adjusted_p == pytest.approx(3 * p_values[0])
    assert comparison_text(table, table.comparisons[0]).startswith("two minus one +12.50 points")


def test_rows_have_their_own_names_and_no_size(table):
    assert [(row.size, row.method, row.title) for row in table.rows] == [
        ("", name, name) for name in SOLVED
    ]
    assert [AVERAGE in row.best for row in table.rows] == [False, True, True]
    assert any("adjusted by Holm over all differences" in note for note in table.notes)
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=200))
    for text in (stream.getvalue(), render(table, "md"), render(table, "tex")):
        assert "minus one" in text
        assert "headline" not in text
        assert "training seed" not in text.lower()
    assert "| Checkpoint | Mean tokens |" in render(table, "md")
