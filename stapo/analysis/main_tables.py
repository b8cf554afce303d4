"""Writing and printing of main tables (`stapo show`)."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis import columns
from stapo.analysis.against_paper import AgainstPaper, compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.formats import template, terminal_table
from stapo.analysis.notes import comparison_text, headline_texts
from stapo.analysis.rows import MainTable
from stapo.analysis.values import values_of
from stapo.files import replace_file
from stapo.study import Study
from stapo.text import visible


def render(table: MainTable, against: AgainstPaper | None = None) -> str:
    """Return the table in Markdown."""
    sources = {row.title: row.source for row in table.rows if row.source}
    return template("main.md.j2").render(table=table, sources=sources, against=against)


def write_tables(study: Study, decoding: str, root: Path = Path()) -> Path:
    """Write the table of one decoding."""
    table = main_table(study, decoding, read_scores(study, decoding, root))
    return write_table(table, compare(study, table), root)


def write_table(table: MainTable, against: AgainstPaper | None = None, root: Path = Path()) -> Path:
    """Write a table, with the comparison with the paper if there is one; return its path."""
    path = root / paths.MAIN_TABLE.format(study=table.study, decoding=table.decoding)
    with replace_file(path) as stream:
        stream.write(render(table, against))
    return path


def print_table(table: MainTable, console: Console) -> None:
    """Print the main table, with headlines and differences below it."""
    sizes = [[*rows] for _, rows in groupby(table.rows, lambda row: row.size)]
    title = Text(f"{table.study}, {table.title}, in %")
    console.print(terminal_table(columns.accuracy(table), sizes, title), crop=False)
    lines = headline_texts(table) + [
        f"  {comparison_text(table, one)}" for one in table.comparisons
    ]
    for line in lines:
        console.print(Text(visible(line)))


def show_study(study: Study, root: Path = Path()) -> None:
    """Print the main tables and the paths of tables, figures and report."""
    console, tables = Console(), _tables(study, root)
    for table in tables:
        print_table(table, console)
    for note in _notes(tables):
        console.print(Text(visible(note)), style="dim")
    console.print()
    for what, path in paths.results_of(study).items():
        console.print(Text(f"{what:8} {path}"))
    console.print(Text(f"check    stapo verify {paths.RESULTS.format(study=study.name)}"))


def show_document(study: Study, root: Path = Path()) -> dict[str, Any]:
    """Return the document of `stapo show --json`: the rows of values.csv, and the paths."""
    values = values_of(Artefacts(study, root))
    notes = _notes(_tables(study, root))
    return {"study": study.name, "values": values, "notes": notes, **paths.results_of(study)}


def _tables(study: Study, root: Path) -> list[MainTable]:
    return [main_table(study, d, read_scores(study, d, root)) for d in study.run.decodings]


def _notes(tables: Iterable[MainTable]) -> list[str]:
    """Return the notes of some tables, each once."""
    return [*dict.fromkeys(note for table in tables for note in table.notes)]
