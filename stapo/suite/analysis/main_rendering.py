"""How main tables are shown: their columns and sentences, as Markdown, and by `stapo show`.

To add a column, add one entry to the list of its table; to add a number to the CSV, a line to
`values.of_rows`.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from stapo.core.files import text_of, write
from stapo.suite import paths
from stapo.suite.analysis.against_paper import PaperComparison, compare_with_paper
from stapo.suite.analysis.artefacts import Artefacts, Cell
from stapo.suite.analysis.formats import (
    METHOD,
    MODEL,
    Column,
    markdown_grid,
    template,
    terminal_table,
)
from stapo.suite.analysis.main_table import BaselineComparison, MainTable, TableRow, main_table
from stapo.suite.analysis.tables.endpoints import primary_texts, published_primary_texts
from stapo.suite.analysis.values import read_values, values_of
from stapo.suite.evaluation.statistics import AVERAGE, UNKNOWN, Interval
from stapo.suite.records.scores import FAILURES
from stapo.suite.results import has_tables_alone
from stapo.suite.study import Study
from stapo.suite.text import visible


def _accuracy(heading: str, name: str) -> Column[TableRow]:
    return Column(heading, lambda row: row.cells[name], best=lambda row: name in row.best)


def _mean(heading: str, measure: Callable[[Cell], float], form: str = ".2f") -> Column[TableRow]:

    def mean(row: TableRow) -> float:
        return float(np.mean([*map(measure, row.responses.values())]))

    return Column(heading, mean, form)


def accuracy(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the main table."""
    benchmarks = [_accuracy(f"{name} avg@{n}", name) for name, n in table.samples.items()]
    return [MODEL, METHOD, *benchmarks, _accuracy(AVERAGE, AVERAGE)]


def overview(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the main table: Avg and its differences come before the benchmarks."""
    model, method, *benchmarks, average = accuracy(table)
    gaps = [gap for target in table.headlines for gap in _gaps(table, target)]
    return [model, method, average, *gaps, *benchmarks]


def _gaps(table: MainTable, target: str) -> tuple[Column[TableRow], Column[TableRow]]:
    """Return the columns of a target minus each row, and of the p-values."""
    gaps = {(gap.model, gap.baseline): gap for gap in table.comparisons if gap.target == target}

    def difference(row: TableRow) -> Interval:
        gap = gaps.get((row.model, row.method))
        return gap.difference.times(100) if gap else UNKNOWN

    def p_value(row: TableRow) -> float:
        return getattr(gaps.get((row.model, row.method)), "adjusted_p", nan)

    heading = f"{table.titles[target]} minus it"
    return Column(heading, difference, "+.2f"), Column("p (Holm)", p_value, ".4f")


RESPONSES: list[Column[TableRow]] = [
    MODEL,
    METHOD,
    Column("Training seeds", lambda row: len(next(iter(row.responses.values())).correct)),
    _mean("Mean tokens", lambda cell: cell.mean("num_tokens"), ".1f"),
    _mean("Truncated [%]", lambda cell: 100 * cell.mean("truncated")),
    _mean("No answer [%]", lambda cell: 100 * cell.share("no_box")),
    _mean("Duplicate [%]", lambda cell: 100 * cell.mean("duplicate")),
    _mean("Grader failed [%]", lambda cell: 100 * cell.share(*FAILURES)),
]


AGAINST_PAPER: list[Column[PaperComparison]] = [
    Column("Revision", lambda row: row.revision, text=True),
    MODEL,
    METHOD,
    Column("Benchmark", lambda cell: cell.what, text=True),
    Column("Ours", lambda cell: cell.ours),
    Column("Paper", lambda cell: cell.paper, ".2f"),
    Column("Difference", lambda cell: cell.ours.map(lambda end: end - cell.paper), "+.2f"),
    Column("Changed in the method", lambda row: row.changed, text=True),
]


def headline_texts(table: MainTable) -> list[str]:
    """Return the headline of each target as one sentence."""
    texts = []
    for target, headline in table.headlines.items():
        title = table.titles[target]
        if headline is None:
            texts.append(
                f"No headline of {title}: it has no baseline, or a strongest baseline is at 0."
            )
            continue
        bounds = headline.mean
        models = ", ".join(
            f"{model} {gain:+.2f} % over {table.titles[headline.baselines[model]]}"
            for model, gain in headline.gains.items()
        )
        over = "the strongest baseline's" + ", mean over models" * (len(headline.gains) > 1)
        texts.append(
            f"Relative gain of {title}'s Avg over {over}: {bounds.value:+.2f} % ({models}); "
            f"with the baseline chosen on other problems {headline.cross_fitted:+.2f} % "
            f"[{bounds.low:+.2f}, {bounds.high:+.2f}]."
        )
    return texts


def comparison_text(table: MainTable, comparison: BaselineComparison) -> str:
    """Return a paired difference as one sentence."""
    d, points = comparison.difference, comparison.difference.times(100)
    model = f"{comparison.model}: " if comparison.model else ""
    names = (comparison.target, comparison.baseline)
    target, baseline = (table.titles.get(name, name) for name in names)
    return (
        f"{model}{target} minus {baseline} {points.value:+.2f} points "
        f"[{points.low:+.2f}, {points.high:+.2f}], p = {comparison.adjusted_p:.4f} (Holm), "
        f"{d.questions:+.1f} questions; detectable {100 * d.detectable:.2f}"
    )


def render(table: MainTable) -> str:
    """Return the table in Markdown, with the comparison with the paper."""
    against = compare_with_paper(table)
    return template("main.md.j2").render(
        table=table,
        sources={row.title: row.source for row in table.rows if row.source},
        accuracy=markdown_grid(accuracy(table), table.rows),
        responses=markdown_grid(RESPONSES, table.rows),
        headlines=headline_texts(table),
        comparisons=[comparison_text(table, comparison) for comparison in table.comparisons],
        against=against and markdown_grid(AGAINST_PAPER, against),
    )


def tables_of(artefacts: Artefacts) -> list[MainTable]:
    """Return the main table of each decoding."""
    return [main_table(artefacts, decoding) for decoding in artefacts.study.run.decodings]


def write_tables(artefacts: Artefacts, decoding: str) -> Path:
    """Write the table of one decoding; return its path."""
    path = paths.MAIN_TABLE.format(study=artefacts.study.name, decoding=decoding)
    return write(artefacts.root / path, render(main_table(artefacts, decoding)))


def print_table(table: MainTable, console: Console) -> None:
    """Print the main table, without the benchmarks that do not fit, with headlines and differences below."""
    models = [[*rows] for _, rows in groupby(table.rows, lambda row: row.model)]
    title = Text(f"{table.study.name}, {table.study.decodings[table.decoding].title}, in %")
    columns, left_out = accuracy(table), list[str]()
    grid = terminal_table(columns, models, title)
    while len(columns) > 3 and (grid.width or 0) > console.width:
        left_out.insert(0, columns.pop(-2).heading)
        grid = terminal_table(columns, models, title)
    console.print(grid, crop=False)
    lines = [f"not shown, the terminal is too narrow: {', '.join(left_out)}"] * bool(left_out)
    lines += headline_texts(table)
    lines += [f"  {comparison_text(table, comparison)}" for comparison in table.comparisons]
    for line in lines:
        console.print(Text(visible(line)))


def show_study(study: Study) -> None:
    """Print the main tables, the primary endpoint, and the paths of tables, figures and report."""
    console = Console()
    if has_tables_alone(study):
        _print_published(study, console)
    else:
        artefacts = Artefacts(study)
        tables = tables_of(artefacts)
        for table in tables:
            print_table(table, console)
        for text in primary_texts(artefacts, _first_target(study)):
            console.print(Text(visible(text)))
        for note in notes_of(tables):
            console.print(Text(visible(note)), style="dim")
    console.print()
    for what, path in paths.results_of(study).items():
        if Path(path).exists():
            console.print(Text(f"{what:8} {path}"))
    console.print(Text(f"check    stapo verify {paths.RESULTS.format(study=study.name)}"))


def _first_target(study: Study) -> list[str]:
    """Return the title of the first target, as a list: the table of endpoints has all others."""
    return [study.title(target) for target in study.compared()[0][:1]]


def _print_published(study: Study, console: Console) -> None:
    """Print the primary endpoint and the main tables from their files, where the scores are not here."""
    for text in published_primary_texts(study, _first_target(study)):
        console.print(Text(visible(text)))
    for decoding in study.run.decodings:
        text = text_of(Path(paths.MAIN_TABLE.format(study=study.name, decoding=decoding)))
        console.print(Markdown(visible(text, keep="\n").replace("<br>", " ")))
    said = "published without raw data; results/README.md says whether they can be brought back"
    console.print(Text(f"\n{said}"))


def show_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo show --json`: the rows of values.csv, and the paths."""
    if has_tables_alone(study):
        values, notes = read_values(study.name), []
    else:
        artefacts = Artefacts(study)
        values, notes = values_of(artefacts), notes_of(tables_of(artefacts))
    return {"study": study.name, "values": values, "notes": notes, **paths.results_of(study)}


def notes_of(tables: Iterable[MainTable]) -> list[str]:
    """Return the notes of some tables, each once."""
    return [*dict.fromkeys(note for table in tables for note in table.notes)]
