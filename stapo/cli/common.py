"""Options and helper functions of several commands."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from stapo.exhibits import NEEDS, Exhibit
from stapo.study import Checkpoint, Study, StudyError, read_study
from stapo.study.resolved import read_resolved
from stapo.study.schema import Verifier

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

StudyOption = Annotated[
    Path,
    typer.Option(
        "--study", help="Study file, or the resolved one that Snakemake writes under work/"
    ),
]
StudyFile = Annotated[Path, typer.Argument(help="Study file")]
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
