"""Options and helper functions of several commands."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from stapo.study import Checkpoint, Study, StudyError, parse_study, read_study
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
"""Exit code for errors in the input."""

StudyArgument = Annotated[str, typer.Option("--study", help="Study file, or its merged JSON")]
StudyFile = Annotated[Path, typer.Argument(help="Study file")]
ConfigOption = Annotated[str, typer.Option("--config", help="JSON, as `snakemake -p` prints it")]
OutOption = Annotated[Path, typer.Option("--out", help="Output path, written atomically")]
WorkOption = Annotated[Path, typer.Option("--work", help="Directory of resumable state")]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=0, help="GPUs to lease for the job; default: all, without lease"),
]


def study_of(text: str) -> Study:
    """Return the study of a file or of merged JSON."""
    if text.lstrip().startswith("{"):
        return parse_study(parse_json(text, "--study"))
    return read_study(Path(text))


def settings_of(option: str, text: str, kind: Any) -> Any:
    """Return the settings that an option contains as JSON.

    Args:
        option: name of the option, for errors.
        text: JSON.
        kind: type to which pydantic converts it.

    Raises:
        StudyError: the JSON is invalid; the message lists every error.
    """
    return validate(TypeAdapter(kind), parse_json(text, option), option)


def require(option: str, name: str, known: Iterable[str]) -> None:
    """Check that a name is known.

    Raises:
        StudyError: it is unknown; the message lists the known names.
    """
    names = list(known)
    if name not in names:
        raise StudyError([f"{option}: unknown name {name!r}; known: {', '.join(names)}"])


def checkpoint_of(study: Study, name: str) -> Checkpoint:
    """Return the checkpoint of that name.

    Raises:
        StudyError: the study has none, with those that it has.
    """
    require("--checkpoint", name, map(str, study.checkpoints()))
    return Checkpoint.parse(name)


def list_paths(paths: list[Path]) -> None:
    """Print the paths of written files."""
    for path in paths:
        typer.echo(str(path))
