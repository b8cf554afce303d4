"""Options and helper functions of several commands."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from stapo.study import Study

GROUPS = {
    "A study": ("check", "plan", "doctor", "fetch", "run", "status", "show"),
    "Around a study": ("verify", "compare", "schema"),
    "Evaluation": ("evaluate",),
    "Other trainers": ("conformance",),
}
"""Heading in `stapo --help` to its commands."""
WHOLE = 200
"""Characters of a command's first sentence that the list shows: all."""

BAD_INPUT = 2
"""Exit code for errors in the input."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
EXIT_CODES = {
    0: "done, and nothing is wrong",
    1: "a check found an error, or a step or this machine failed (a missing file, a full disk)",
    BAD_INPUT: "wrong input, or a training that does not fit: nothing was started",
    INTERRUPTED: "stopped with Ctrl-C; the same command continues",
}
"""Exit code to its meaning, the same for all commands."""


class GroupedCommands(TyperGroup):
    """The commands of `stapo --help` under the headings of `GROUPS`, and the exit codes below them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of commands."""
        others = self.commands.keys() - {name for names in GROUPS.values() for name in names}
        lists = {
            heading: {name: self.commands[name].get_short_help_str(WHOLE) for name in names}
            for heading, names in {**GROUPS, "Others": others}.items()
            if names
        }
        lists["Exit codes"] = {str(code): meaning for code, meaning in EXIT_CODES.items()}
        width = max(len(name) for names in lists.values() for name in names)
        for heading, rows in lists.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows.items()])


app = typer.Typer(
    cls=GroupedCommands,
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
    from stapo.study.resolved import read_resolved

    return read_resolved(path) if path.suffix == ".json" else read_study(path)


def study_here(file: Path) -> "Study":
    """Return the study of a file; warn if the results here are of another study of its name."""
    from stapo.study import StudyError, read_study
    from stapo.study.resolved import check_origin

    found = read_study(file)
    try:
        check_origin(found, [file])
    except StudyError as error:
        for line in error.errors:
            typer.echo(f"warning: {line}", err=True)
    return found
