"""Options and helper functions of several commands."""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stapo.exhibits import NEEDS, Exhibit
from stapo.study import Checkpoint, Study, StudyError, read_study
from stapo.study.origin import check_origin
from stapo.study.resolved import read_resolved
from stapo.study.schema import Verifier

GROUPS = {
    "A study": ("check", "plan", "doctor", "fetch", "status", "show"),
    "Around a study": ("verify", "compare", "intervene", "paper", "schema"),
    "Evaluation": ("evaluate", "regrade", "compare-engines"),
    "Other trainers": ("conformance",),
}
"""Heading in `stapo --help` to its commands; all others are steps of the pipeline."""
STEPS = "Steps of a study, which Snakemake calls"
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


def grouped(commands: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of commands under the headings of `GROUPS`, and all others as steps."""
    named = {name for names in GROUPS.values() for name in names}
    return {**GROUPS, STEPS: tuple(name for name in commands if name not in named)}


class GroupedCommands(TyperGroup):
    """The commands of `stapo --help` under the headings of `GROUPS`, and the exit codes below them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of commands."""
        lists = {
            heading: {name: self.commands[name].get_short_help_str(WHOLE) for name in names}
            for heading, names in grouped(self.list_commands(ctx)).items()
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
SizeOption = Annotated[str, typer.Option("--size", help="Model size of the study")]
CheckpointOption = Annotated[
    str,
    typer.Option("--checkpoint", help="size/base, size/method/seedK or size/method/seedK/stepN"),
]
DecodingOption = Annotated[str, typer.Option("--decoding", help="Decoding of the study")]
OutOption = Annotated[Path, typer.Option("--out", help="Output path, written atomically")]
WorkOption = Annotated[Path, typer.Option("--work", help="Directory of resumable state")]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=0, help="GPUs to lease for the job; default: all, without lease"),
]


def study_of(path: Path) -> Study:
    """Return the study of a file: as somebody wrote it, or as Snakemake resolved it."""
    return read_resolved(path) if path.suffix == ".json" else read_study(path)


def study_here(file: Path) -> Study:
    """Return the study of a file; warn if the results here are of another study of its name."""
    found = read_study(file)
    try:
        check_origin(found, [file])
    except StudyError as error:
        for line in error.errors:
            typer.echo(f"warning: {line}", err=True)
    return found


def require(option: str, name: str, known: Iterable[str]) -> None:
    """Check that a name is known.

    Raises:
        StudyError: it is unknown; the message lists the known names.
    """
    names = list(known)
    if name not in names:
        raise StudyError([f"{option}: unknown name {name!r}; known: {', '.join(names)}"])


def require_exhibit(
    study: Study, name: str, all_of_them: Mapping[str, Exhibit], shown: list[str]
) -> None:
    """Check that a study has a figure or table.

    Raises:
        StudyError: the name is unknown, or the study lacks what it shows.
    """
    require("--name", name, all_of_them if name in all_of_them else shown)
    needed = all_of_them[name].needs
    if name not in shown and needed is not None:
        raise StudyError([f"--name: {name} needs {NEEDS[needed]}, which this study lacks"])


def checkpoint_of(study: Study, name: str) -> Checkpoint:
    """Return the checkpoint of that name.

    Raises:
        StudyError: the study has none, with those that it has.
    """
    require("--checkpoint", name, map(str, study.checkpoints()))
    return Checkpoint.parse(name)


def verifier_of(study: Study) -> Verifier:
    """Return the settings of a study's verifier.

    Raises:
        StudyError: it has none.
    """
    if study.evaluation.verifier is None:
        raise StudyError(["--study: has no evaluation.verifier; add it, or leave out --verifier"])
    return study.evaluation.verifier


def list_paths(paths: list[Path]) -> None:
    """Print the paths of written files."""
    for path in paths:
        typer.echo(str(path))
