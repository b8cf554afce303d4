"""Tables of evidence: one table as data, three files that say the same."""

import csv
import io
from math import nan

import pytest
from stapo.analysis.grids import Grid

from stapo import paths
from stapo.analysis import evidence_tables
from stapo.analysis.columns import Column, Estimate
from stapo.analysis.evidence_tables import render_grid, write_evidence

GRID = Grid(
    columns=[
        Column("Method", lambda row: row[0], text=True),
        Column("Count", lambda row: row[1], ",d"),
        Column("Norm", lambda row: row[2], ".3f"),
        Column("Share [%]", lambda row: row[3]),
    ],
    rows=[
        ("G_R|P", 12345, Estimate(-0.12345678901, -0.25, 0.5), 1.5),
        ("A & B <b>", 3, Estimate(2.0), nan),
    ],
    caption="What is | seen.",
    notes=["p < 0.05"],
)


def test_markdown_has_a_cell_per_value_and_escapes_text():
    text = render_grid("demo", "stability", GRID, "md", "f00d")
    assert text.startswith("# demo, Stability\n\nWhat is \\| seen.\n")
    assert r"| G\_R\|P | 12,345 | -0.123<br>[-0.250, 0.500] | 1.5 |" in text
    assert "| A &amp; B &lt;b&gt; | 3 | 2.000 | \u2013 |" in text
    assert "p &lt; 0.05" in text
    assert "\u2013: not measured." in text
    assert text.endswith("Configuration f00d.\n")


def test_the_csv_has_all_digits_bounds_and_nothing_where_nothing_was_measured():
    rows = list(csv.reader(io.StringIO(render_grid("demo", "stability", GRID, "csv", "f00d"))))
    assert rows[0] == ["Method", "Count", "Norm", "Norm, low", "Norm, high", "Share [%]"]
    assert rows[1] == ["G_R|P", "12345", "-0.12345679", "-0.25", "0.5", "1.5"]
    assert rows[2] == ["A & B <b>", "3", "2", "", "", ""]


def test_latex_has_a_label_a_short_caption_and_minus_signs():
    text = render_grid("demo", "token_frequencies", GRID, "tex", "f00d")
    assert r"\label{tab:demo-token-frequencies}" in text
    assert r"\caption[{demo: Most frequent silenced and retained tokens}]{What is" in text
    assert r"G\_R\textbar{}P & 12,345 & $-$0.123 & 1.5 \\" in text
    assert r" &  & {\scriptsize [$-$0.250, 0.500]} &  \\" in text
    assert r"A \& B \textless{}b\textgreater{} & 3 & 2.000 & \textendash{} \\" in text
    assert "Configuration f00d" in text.splitlines()[0]


def test_files_are_written_where_rules_expect_them(study, tmp_path, monkeypatch):
    monkeypatch.setitem(evidence_tables.GRIDS, "stability", lambda found: GRID)
    written = write_evidence(study, "stability", tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        paths.TABLE.format(study="demo", table="stability", suffix=suffix)
        for suffix in ("md", "tex", "csv")
    ]
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_evidence(study, "stability", tmp_path)] == first


@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_a_table_with_all_numbers_says_nothing_of_missing_ones(suffix):
    grid = Grid(columns=GRID.columns, rows=GRID.rows[:1])
    assert "not measured" not in render_grid("demo", "stability", grid, suffix, "f00d")
