"""Main tables of a finished study, and where its results are: the content of `stapo show`."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.notes import notes
from stapo.analysis.tables import print_table
from stapo.analysis.values import values_table
from stapo.study import Study


def show_study(study: Study, root: Path = Path()) -> None:
    """Print the main tables and the paths of tables, figures and report.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    console = Console()
    for decoding in study.run.decodings:
        print_table(main_table(study, decoding, read_scores(study, decoding, root)), console)
    for note in notes(study):
        console.print(Text(note), style="dim")
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
    return {"study": study.name, "values": values, "notes": notes(study), **paths.results_of(study)}
