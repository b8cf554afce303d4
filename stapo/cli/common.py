"""Options and helpers that several commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from stapo.study import Study, StudyError, parse_study, read_study
from stapo.study.loader import parse_json
from stapo.study.validation import validate

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Reproduce, check and extend STAPO (arXiv 2602.15620). The whole study in one command: "
    "make smoke, or snakemake --configfile workflows/studies/STUDY.yaml.",
)

BAD_INPUT = 2
"""Exit code."""

StudyArgument = Annotated[str, typer.Option("--study", help="Study file, or its merged JSON")]
StudyFile = Annotated[Path, typer.Argument(help="Study file")]
ConfigOption = Annotated[str, typer.Option("--config", help="JSON, as `snakemake -p` prints it")]
OutOption = Annotated[Path, typer.Option("--out", help="Where the result appears, by one rename")]
WorkOption = Annotated[Path, typer.Option("--work", help="Directory of resumable state")]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=0, help="GPUs of the job, leased; default: all, unleased"),
]


def study_of(text: str) -> Study:
    """Return the study of a file or of merged JSON."""
    if text.lstrip().startswith("{"):
        return parse_study(parse_json(text, "--study"))
    return read_study(Path(text))


def settings_of(option: str, text: str, kind: Any) -> Any:
    """Return the settings that an option holds as JSON.

    Args:
        option: its name, for errors.
        text: JSON.
        kind: what pydantic makes of it.

    Raises:
        StudyError: with every error.
    """
    return validate(TypeAdapter(kind), parse_json(text, option), option)


def require(option: str, name: str, known: Iterable[str]) -> None:
    """Check that a name is one that the study has.

    Raises:
        StudyError: it is not, with those that are.
    """
    names = list(known)
    if name not in names:
        raise StudyError([f"{option}: unknown name {name!r}; known: {', '.join(names)}"])


def list_paths(paths: list[Path]) -> None:
    """Print what was written."""
    for path in paths:
        typer.echo(str(path))
