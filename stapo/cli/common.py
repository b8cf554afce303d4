"""Options and helper functions of several commands."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from stapo.study import Study

BAD_INPUT = 2
"""Exit code for errors in the input."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproduce, check and extend STAPO (arXiv 2602.15620). The whole study in one command: "
    "make smoke, or snakemake --configfile workflows/studies/STUDY.yaml.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stapo {version('stapo')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """Take the options of the program itself."""


def print_json(document: dict[str, Any]) -> None:
    """Print the document of a command with `--json`."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))


def tell(
    as_json: bool, document: Callable[[], dict[str, Any]], shown: Callable[[], bool | None]
) -> None:
    """Print a document, or what people read; exit code 1 if it says that something failed.

    Args:
        as_json: which of the two.
        document: returns the document, perhaps with the key `failed`.
        shown: prints what people read; returns whether something failed.
    """
    if as_json:
        found = document()
        print_json(found)
        failed = found.get("failed")
    else:
        failed = shown()
    if failed:
        raise typer.Exit(1)


def console() -> Any:
    """Return rich's console on the standard output."""
    from rich.console import Console

    return Console()


StudyOption = Annotated[
    Path,
    typer.Option(
        "--study", help="Study file, or the resolved one that Snakemake writes under work/"
    ),
]
StudyFile = Annotated[Path, typer.Argument(help="Study file")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; docs/command-line.md has its keys")
]


def study_of(path: Path) -> "Study":
    """Return the study of a file: as somebody wrote it, or as Snakemake resolved it."""
    from stapo.study import read_study
    from stapo.study.reading import read_resolved

    return read_resolved(path) if path.suffix == ".json" else read_study(path)
