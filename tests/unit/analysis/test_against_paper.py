"""Ours beside the paper's, and the audit of the paper's own table."""

import pytest
from synthetic import write_score

from stapo.analysis.against_paper import audit_headlines, audit_rows, audit_text, compare
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.tables import render
from stapo.reference import paper
from stapo.study import parse_study


def test_the_one_row_that_does_not_add_up_is_named():
    rows = audit_rows()
    assert len(rows) == 24
    (odd,) = [row for row in rows if not row.follows]
    assert (odd.size, odd.method, odd.stated) == ("14B", "stapo", 64.38)
    assert odd.recomputed == pytest.approx(64.905)
    assert "23 of 24" in audit_text()
    assert "STAPO 14B at t1.0-p1.0" in audit_text()


def test_headlines_of_a_revision_without_table_are_not_recomputed():
    found = {(h.revision, h.decoding): h for h in audit_headlines()}
    assert found["v1 to v3", "t1.0-p1.0"].from_stated == pytest.approx(7.13, abs=0.005)
    assert found["v1 to v3", "t0.7-p0.9"].from_stated == pytest.approx(3.71, abs=0.005)
    assert found["v4 and v5", "t1.0-p1.0"].from_stated is None
    assert found["v4 and v5", "t1.0-p1.0"].stated == 11.49


@pytest.mark.parametrize("all_six", [True, False])
def test_ours_stands_beside_the_papers_cell(raw_study, tmp_path, all_six):
    names = paper()["benchmarks"] if all_six else ["aime24", "math500"]
    raw_study["benchmarks"] = {name: {"samples": 10} for name in names}
    raw_study["run"] |= {"sizes": ["1.7B"], "decodings": ["t0.7-p0.9"], "benchmarks": names}
    study = parse_study(raw_study)
    for checkpoint in study.checkpoints():
        for benchmark in names:
            write_score(tmp_path, study, checkpoint, benchmark)
    table = main_table(study, "t0.7-p0.9", read_scores(study, "t0.7-p0.9", tmp_path))
    cells = {(cell.title, cell.column): cell for cell in compare(study, table)}
    # An average over other benchmarks than the paper's is another quantity.
    assert len(cells) == 4 * (7 if all_six else 2)
    cell = cells["STAPO", "aime24"]
    own = next(row for row in table.rows if row.method == "stapo").cells["aime24"].value
    assert (cell.ours, cell.paper, cell.difference) == (own, 16.04, own - 16.04)
    text = render(table, "md", compare(study, table))
    assert f"| 1.7B | STAPO | aime24 | {own:.2f} | 16.04 | {own - 16.04:+.2f} |" in text
    assert "Against the paper" not in render(table, "md", [])
