"""The command `run`: a stage of a study, or one job of it, as Snakemake's rules start them."""

from typing import Annotated

import typer

from stapo.cli.common import StudyOption, app, study_of


@app.command()
def run(
    stage: Annotated[str, typer.Argument(help="Such as train, generate or score")],
    study: StudyOption,
    job: Annotated[
        str,
        typer.Argument(
            help="Such as tiny/stapo/seed0 (train), tiny/base/t1.0-p1.0 (generate, score); default: all"
        ),
    ] = "",
    gpus: Annotated[
        int | None,
        typer.Option(min=0, help="GPUs to lease for the job; default: all, without lease"),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Machines that share the GPUs; Slurm only")] = 1,
) -> None:
    """Run one stage of a study, or one job of it, whose inputs are there; Snakemake runs all in order.

    Example: stapo run train tiny/stapo/seed0 --study workflows/studies/smoke.yaml
    """
    from stapo.stages import Resources
    from stapo.stages import run as run_stage

    run_stage(study_of(study), stage, job, Resources(gpus, nodes))
