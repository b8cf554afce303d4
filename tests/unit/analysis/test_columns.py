"""A column is declared once: what it shows is in every format, and nothing else has to know of it."""

import csv
import io

from rich.console import Console

from stapo import paths
from stapo.analysis import columns
from stapo.analysis.cells import read_scores
from stapo.analysis.columns import FORMATS, Column, Metric
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import write_figure
from stapo.analysis.main_tables import print_table, render
from stapo.analysis.report import render_report
from stapo.analysis.rows import AVERAGE

DECODING = "t1.0-p1.0"


def test_one_more_column_of_the_main_table_is_in_all_five_formats(study, finished, monkeypatch):
    known = columns.accuracy
    one = Column("Tokens & more", lambda row: 12.3456, ".3f", metric=Metric("tokens", AVERAGE))
    monkeypatch.setattr(columns, "accuracy", lambda table: [*known(table), one])
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    for name in paths.figure_names(study):
        write_figure(study, name, finished)
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=200))
    shown = {
        "md": (render(table, "md"), "| Tokens &amp; more |"),
        "tex": (render(table, "tex"), r"& Tokens \& more \\"),
        "html": (render_report(study, finished), ">Tokens &amp; more</th>"),
        "terminal": (stream.getvalue(), "Tokens & more"),
    }
    assert set(shown) == set(FORMATS)
    for name, (text, heading) in shown.items():
        assert text.count(heading) == 1, name
        assert text.count("12.346") == len(table.rows), name
    lines = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    (first, *others) = [line for line in lines if line["metric"] == "tokens"]
    assert len(others) == len(table.rows) - 1
    assert (first["benchmark"], first["value"], first["low"]) == (AVERAGE, "12.345600", "")
    assert (first["problems"], first["samples"], first["method"]) == ("40", "", "base")


def test_a_column_is_only_where_it_says(study, finished, monkeypatch):
    known = columns.RESPONSES
    one = Column("Hidden", lambda row: 1, formats=("tex",))
    monkeypatch.setattr(columns, "RESPONSES", [*known, one])
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    for suffix in ("md", "tex", "csv"):
        assert "Hidden" not in render(table, suffix)


def test_the_csv_has_a_line_for_each_benchmark_before_those_of_the_averages(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    lines = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    found = [(line["benchmark"], line["metric"]) for line in lines if line["method"] == "stapo"]
    each = ["avg@4", "pass@1", "pass@2", "pass@4", "majority@4"]
    expected = [(name, metric) for name in study.run.benchmarks for metric in each]
    # Another column may have a metric, too.
    assert [one for one in found if one[1] in (*each, "avg@N")] == [*expected, (AVERAGE, "avg@N")]
    names = [name for name, _ in found]
    assert names == sorted(names, key=[*study.run.benchmarks, AVERAGE].index)
