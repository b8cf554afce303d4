"""The commands. What they need is imported inside them, so that the program starts at once."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stapo.core.methods import CONFORMANCE_METHODS

if TYPE_CHECKING:
    from stapo.suite.study import Study

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reproduce, check and extend STAPO (arXiv 2602.15620). The whole study in one command: "
    "make smoke, or snakemake --configfile workflows/studies/quickstart/smoke.yaml.",
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
    """Print a document, or what people read; exit code 1 if its key `failed`, or `shown`, says so."""
    if as_json:
        content = document()
        print_json(content)
        failed = content.get("failed")
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
StudyFile = Annotated[Path, typer.Argument(help="Study file, or name of one in workflows/studies")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; docs/command-line.md has its keys")
]


def study_of(path: Path) -> "Study":
    """Return the study of a file, as somebody wrote it or as Snakemake resolved it, or of a name."""
    from stapo.suite.repository import STUDIES
    from stapo.suite.study.loader import StudyError
    from stapo.suite.study.reading import read_resolved, read_study, shipped
    from stapo.suite.text import did_you_mean

    if path.suffix == ".json":
        return read_resolved(path)
    file = path if os.path.isfile(path) else shipped(str(path))
    if file is None and not path.suffix and not os.path.exists(path):
        near = did_you_mean(str(path), (study.stem for study in STUDIES.rglob("*.yaml")))
        message = f"{path}: no such file, and no study of this name in workflows/studies; {near}"
        raise StudyError([message.rstrip("; ")])
    return read_study(file or path)


@app.command()
def run(
    stage: Annotated[str, typer.Argument(help="Such as train, generate or score")],
    study: StudyOption,
    job: Annotated[str, typer.Argument(help="Such as tiny/stapo/seed0; default: all")] = "",
    gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs to lease; default: no lease")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines that share the GPUs; Slurm only")] = 1,
) -> None:
    """Run one stage of a study, or one job. Its inputs are there; Snakemake runs all in order.

    Example: stapo run train tiny/stapo/seed0 --study workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite import runners

    runners.run(study_of(study), stage, job, runners.Resources(gpus, nodes))


@app.command()
def check(study: StudyFile, as_json: JsonOption = False) -> None:
    """Check a study file and print what it would run. It shows all settings of every method.

    Example: stapo check workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite.operations.check import check_document, print_check

    loaded = study_of(study)
    tell(as_json, lambda: check_document(loaded), lambda: print_check(loaded, console()))


@app.command()
def plan(
    study: StudyFile,
    gpu: Annotated[str, typer.Option(help="Such as h100, or cpu for tiny models")] = "h100",
    gpus: Annotated[int, typer.Option(min=1, help="Of one training")] = 8,
    dollars: Annotated[float, typer.Option(min=0, help="Price of an hour of one GPU")] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Estimate the costs of a study: jobs, hours, GPU-hours, disk.

    Example: stapo plan workflows/studies/paper/paper.yaml --gpu h100 --gpus 8 --dollars 3
    """
    from stapo.suite.operations.plan import plan_document, print_plan

    asked = study_of(study), gpu, 1 if gpu == "cpu" else gpus
    tell(as_json, lambda: plan_document(*asked), lambda: print_plan(*asked, console(), dollars))


@app.command()
def preview(
    selection: Annotated[str, typer.Argument(help="Token selection of your own: FILE.py:function")],
    study: StudyFile,
) -> None:
    """Show which recorded tokens a selection would drop. They are those of a finished study.

    Example: stapo preview mine.py:rare workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite.operations.preview import preview as shown

    shown(selection, study_of(study), console())


@app.command()
def status(study: StudyFile, as_json: JsonOption = False) -> None:
    """Print the progress of every job. It only reads files, also during a run.

    Exit code 1 if something failed.

    Example: stapo status workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite.operations.status import print_status, status_document

    loaded = study_of(study)
    tell(as_json, lambda: status_document(loaded), lambda: not print_status(loaded, console()))


@app.command()
def clean(
    study: StudyFile,
    remove: Annotated[bool, typer.Option("--remove", help="Remove them")] = False,
) -> None:
    """Print what step checkpoints of finished trainings take, or remove them. No result needs them.

    A training with more steps would go on from them.

    Example: stapo clean workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite.operations.clean import clean as cleaned

    cleaned(study_of(study), console(), remove)


@app.command()
def schema() -> None:
    """Print the JSON schema of study files.

    Example: stapo schema > workflows/study.schema.json
    """
    from stapo.suite.study import study_schema

    typer.echo(json.dumps(study_schema(), indent=1, sort_keys=True))


@app.command()
def fetch(
    study: StudyFile,
    check: Annotated[bool, typer.Option("--check", help="Only check, without network")] = False,
) -> None:
    """Download everything that a study needs. A second run continues the first.

    Everything lands in the caches under HF_HOME. Exit code 1 if something is missing.

    Example: stapo fetch workflows/studies/mine.yaml
    """
    from stapo.suite.hub import OFFLINE
    from stapo.suite.operations.fetch import fetch as run

    if check:
        os.environ[OFFLINE] = "1"
    if not run(study_of(study), typer.echo):
        raise typer.Exit(1)


@app.command()
def conformance(
    trainer: Annotated[
        str,
        typer.Option(help="ours, trl-dapo (TRL's loss of that name), or package.module:function"),
    ] = "ours",
    method: Annotated[
        str | None, typer.Option(help=f"What it is meant to be: {', '.join(CONFORMANCE_METHODS)}")
    ] = None,
) -> None:
    """Compare a trainer's loss with a method's update. It prints which conventions it follows.

    Exit code 1 if a check fails. stapo/core/conformance/batches.py describes the interface of a trainer.

    Example: stapo conformance --trainer trl-dapo --method justrl
    """
    from stapo.core.conformance.kit import find_trainer, report
    from stapo.suite.study import StudyError

    try:
        implementation, meant = find_trainer(trainer)
        lines, holds = report(implementation, trainer, method or meant)
    except ValueError as error:
        raise StudyError([str(error)]) from error
    typer.echo("\n".join(lines))
    if not holds:
        raise typer.Exit(1)


@app.command()
def show(study: StudyFile, as_json: JsonOption = False) -> None:
    """Print the main tables and the paths of all results.

    Example: stapo show workflows/studies/quickstart/smoke.yaml
    """
    from stapo.suite.analysis.main_rendering import show_document, show_study

    loaded = study_of(study)
    tell(as_json, lambda: show_document(loaded), lambda: show_study(loaded))


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Score file, or folder of score files")],
    second: Annotated[Path, typer.Argument(help="Another one")],
    as_json: JsonOption = False,
) -> None:
    """Compare the scores of two checkpoints, paired by problem. They may be of two engines, too.

    A folder is scores/CHECKPOINT/DECODING of a study; benchmarks that both have are compared.

    Example: stapo compare scores/tiny/base/t1.0-p1.0 scores/tiny/stapo/seed0/t1.0-p1.0
    """
    from stapo.suite.analysis.compare import compare_scores, print_comparison

    comparison = compare_scores(first, second)
    tell(as_json, lambda: asdict(comparison), lambda: print_comparison(comparison, console()))


@app.command()
def verify(
    results: Annotated[Path, typer.Argument(help="Results folder of a study")],
    as_json: JsonOption = False,
) -> None:
    """Check a published results folder, offline. It reads files, fingerprints, scores, tables.

    Exit code 1 if a check fails.

    Example: stapo verify results/smollm2-s2t
    """
    from stapo.suite.publication.verify import verify as checked

    tell(as_json, lambda: checked(results), lambda: bool(checked(results, typer.echo)["failed"]))
