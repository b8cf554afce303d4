"""Writing and printing of the paper-style table of one decoding, and of the audit of the paper's table."""

from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis import columns
from stapo.analysis.against_paper import AgainstPaper, compare
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.formats import latex_table, template, terminal_table
from stapo.analysis.notes import comparison_text, headline_texts
from stapo.analysis.paper_audit import audit_rows, audit_text, statements
from stapo.analysis.rows import AVERAGE, MainTable
from stapo.analysis.table import Table
from stapo.analysis.values import main_csv
from stapo.files import replace_file
from stapo.reference import paper
from stapo.study import Study
from stapo.text import visible


def render(table: MainTable, suffix: str, against: AgainstPaper | None = None) -> str:
    """Return the table as `md`, `tex` or `csv`; only Markdown contains the comparison with the paper."""
    if suffix == "csv":
        return main_csv(table)
    sources = {row.title: row.source for row in table.rows if row.source}
    if suffix == "tex":
        conditions = f"{table.study}, {table.title}"
        found = Table(
            columns=columns.accuracy(table),
            rows=table.rows,
            caption=f"{conditions}: accuracy in %, {table.best_of} in bold, 95 % intervals below."
            + (table.part and f" {table.part}"),
            notes=[
                *(f"{title}: {source}." for title, source in sources.items()),
                *headline_texts(table),
                # Of a study, only the headlines: it may have many comparisons.
                *(
                    comparison_text(table, c) + "."
                    for c in table.comparisons
                    if not table.headlines
                ),
                *table.notes,
            ],
        )
        label = (table.study, table.decoding)
        return latex_table(label, found, table.made_by, f"{conditions}: accuracy")
    return template(f"main.{suffix}.j2").render(table=table, sources=sources, against=against)


def write_tables(study: Study, decoding: str, root: Path = Path()) -> list[Path]:
    """Write the table of one decoding in its three formats.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    table = main_table(study, decoding, read_scores(study, decoding, root))
    return write_table(table, compare(study, table), root)


def write_table(
    table: MainTable, against: AgainstPaper | None = None, root: Path = Path()
) -> list[Path]:
    """Write a table in its three formats; only Markdown contains the comparison with the paper."""
    written = []
    for suffix in paths.SUFFIXES:
        path = root / paths.MAIN_TABLE.format(
            study=table.study, decoding=table.decoding, suffix=suffix
        )
        with replace_file(path) as stream:
            stream.write(render(table, suffix, against))
        written.append(path)
    return written


def print_table(table: MainTable, console: Console) -> None:
    """Print the main table, with headlines and differences below it."""
    further = {name for name in table.averages if name != AVERAGE}
    shown = [column for column in columns.accuracy(table) if column.heading not in further]
    sizes = [list(rows) for _, rows in groupby(table.rows, lambda row: row.size)]
    title = Text(f"{table.study}, {table.title}, in %")
    console.print(terminal_table(shown, sizes, title), crop=False)
    for line in filter(None, (table.part, *_further_averages(table), *headline_texts(table))):
        console.print(Text(visible(line)))
    for comparison in table.comparisons:
        console.print(Text("  " + visible(comparison_text(table, comparison))))


def _further_averages(table: MainTable) -> list[str]:
    """Return a line for each size and each average besides Avg, whose columns do not fit."""
    lines = []
    for heading in table.averages:
        for size, rows in groupby(table.rows, lambda row: row.size):
            values = ", ".join(f"{row.title} {row.cells[heading].value:.2f}" for row in rows)
            lines += [f"{heading}, {size}: {values}"] * (heading != AVERAGE)
    return lines


def print_audit(console: Console) -> None:
    """Print the audit of the paper's table, with claims, notes and results of others."""
    title = f"The paper's averages ({paper()['table']['revision']}), recomputed"
    odd = terminal_table(
        columns.AUDIT,
        [audit_rows()],
        Text(title),
        style=lambda row: "" if row.follows else "bold red",
    )
    console.print(odd, crop=False)
    console.print(Text(audit_text()))
    for heading, found in statements().items():
        console.print(Text(f"\n{heading}", style="bold"))
        for line in found:
            console.print(Text(f"- {line}"))
