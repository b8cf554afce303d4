"""Main tables of a finished study, and where its results are: the content of `stapo show`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import print_table
from stapo.analysis.rows import MainTable
from stapo.analysis.values import values_table
from stapo.study import Study
from stapo.text import visible


def show_study(study: Study, root: Path = Path()) -> None:
    """Print the main tables and the paths of tables, figures and report.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    console = Console()
    tables = _tables(study, root)
    for table in tables:
        print_table(table, console)
    for note in _notes(tables):
        console.print(Text(visible(note)), style="dim")
    console.print()
    for what, path in paths.results_of(study).items():
        console.print(Text(f"{what:8} {path}"))
    console.print(Text(f"check    stapo verify {paths.RESULTS.format(study=study.name)}"))


def show_document(study: Study, root: Path = Path()) -> dict[str, Any]:
    """Return the document of `stapo show --json`: the rows of values.csv, and the paths.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    values = values_table(Artefacts(study, root)).to_pylist()
    notes = _notes(_tables(study, root))
    return {"study": study.name, "values": values, "notes": notes, **paths.results_of(study)}


def _tables(study: Study, root: Path) -> list[MainTable]:
    return [
        main_table(study, decoding, read_scores(study, decoding, root))
        for decoding in study.run.decodings
    ]


def _notes(tables: Iterable[MainTable]) -> list[str]:
    """Return the notes of some tables, each once."""
    return [*dict.fromkeys(note for table in tables for note in table.notes)]
