"""Tables as Markdown, CSV and in the terminal, from one declaration."""

import csv
import io
from math import nan

from stapo.suite.analysis.formats import Column, Table, csv_text, read_csv, render
from stapo.suite.evaluation.statistics import Interval

TABLE = Table(
    columns=[
        Column("Method", lambda row: row[0], text=True),
        Column("Count", lambda row: row[1], ",d"),
        Column("Norm", lambda row: row[2], ".3f"),
        Column("Share [%]", lambda row: row[3]),
    ],
    rows=[
        ("G_R|P", 12345, Interval(-0.12345678901, -0.25, 0.5), 1.5),
        ("A & B <b>", 3, Interval(2.0, nan, nan), nan),
    ],
    caption="What is | seen.",
    notes=["p < 0.05"],
)


def written(suffix: str) -> str:
    return render(TABLE, suffix, "demo, A title", "f00d")


def test_markdown_has_a_cell_per_value_and_escapes_text():
    text = written("md")
    assert text.startswith("# demo, A title\n\nWhat is \\| seen.\n")
    assert r"| G\_R\|P | 12,345 | -0.123<br>[-0.250, 0.500] | 1.5 |" in text
    assert "| A &amp; B &lt;b&gt; | 3 | 2.000 | \u2013 |" in text
    assert "\n\np &lt; 0.05\n\nConfiguration f00d.\n" in text


def test_the_csv_has_all_digits_bounds_and_nothing_where_nothing_was_measured():
    rows = list(csv.reader(io.StringIO(written("csv"))))
    assert rows[0] == ["Method", "Count", "Norm", "Norm, low", "Norm, high", "Share [%]"]
    assert rows[1] == ["G_R|P", "12345", "-0.12345679", "-0.25", "0.5", "1.5"]
    assert rows[2] == ["A & B <b>", "3", "2", "", "", ""]


def test_what_is_read_is_what_was_written(tmp_path):
    rows = [{"A": "-S2T", "+KL minus it": 1.5}, {"A": "135", "+KL minus it": None}]
    path = tmp_path / "t.csv"
    path.write_text(csv_text([rows[0], *(row.values() for row in rows)]))
    assert read_csv(path, ["A"]) == rows


def test_no_text_of_a_csv_is_a_formula_and_numbers_stay():
    formulas = ["=cmd|' /C calc'!A0", "+x", "-x+1", "@sum(1)", "\tx", "=A1"]
    numbers = ["-1.5", "+1.20 [-0.30, +2.10]", "1e-05", "a=b", "", "=", "-"]
    (row,) = csv.reader(io.StringIO(csv_text([[*formulas, *numbers]])))
    assert row == [*(f"'{text}" for text in formulas), *numbers]
