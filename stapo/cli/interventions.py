"""The command of the rule `intervene`."""

from pathlib import Path
from typing import Annotated

import typer

from stapo import paths
from stapo.cli.common import CheckpointOption, StudyOption, app, list_paths, study_of
from stapo.study import Checkpoint, Study, StudyError, identity
from stapo.training.launch import training_errors, training_warnings


@app.command()
def intervene(
    study: StudyOption,
    checkpoint: CheckpointOption,
    out: Annotated[
        Path, typer.Option(help="Directory of the result: CHECKPOINT.json and CHECKPOINT.parquet")
    ],
    model: Annotated[
        Path | None, typer.Option(help="Weights; default: those that the study publishes")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Training prompts; default: those of the study")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Directory of finished repetitions; default: under work/")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=0, max=1, help="GPU to lease, 0 or 1")] = None,
) -> None:
    """Measure what one update of a checkpoint does with and without silencing.

    From the same weights and the same rollout, one update each with nothing silenced, with S2T, and with
    equally many other tokens silenced: candidates drawn at random, tokens with A > 0 drawn at random, and the
    candidates of the highest entropy. The study's `interventions` say how often and on how many prompts. It
    runs in one process; after an interruption, only the repetition in progress is done again.

    Example: stapo intervene --study workflows/studies/smoke.yaml --checkpoint tiny/justrl/seed0
    --out by-hand
    """
    found = study_of(study)
    model = model or Path(_published(found, checkpoint))
    prompts = prompts or Path(paths.PROMPTS.format(study=found.name))
    if errors := _errors(found, checkpoint, model, prompts):
        raise StudyError(errors)
    of, method = Checkpoint.parse(checkpoint), found.interventions.method
    made_by = identity.intervention_fingerprint(found, of)
    typer.echo(f"configuration {made_by}")
    if gpus is not None:
        from stapo.gpus import take_gpus

        take_gpus(gpus)
        if errors := training_errors(found, of.size, gpus, 1):
            raise StudyError(errors)
        for line in training_warnings(found, of.size, gpus, 1):
            typer.echo(f"warning: {line}", err=True)
    place = paths.INTERVENE_WORK.format(study=found.name, checkpoint=of)
    from stapo.training.intervene import InterventionJob
    from stapo.training.intervene import intervene as run

    job = InterventionJob(
        config=identity.intervention_config(found, of),
        fingerprint=made_by,
        checkpoint=checkpoint,
        settings=found.interventions,
        training=found.training_of(method),
        method=found.method(method),
        model=model,
        prompts=prompts,
        work=work or Path(place) / made_by,
        out=out / f"{checkpoint}.json",
        engine=found.engine_of(of.size),
        end_tokens=found.end_tokens,
    )
    list_paths(run(job))


def _published(study: Study, checkpoint: str) -> str:
    """Return where a study publishes a checkpoint, or what was asked for if it has none of this name."""
    if checkpoint in map(str, study.checkpoints()):
        return paths.checkpoint_path(study.name, Checkpoint.parse(checkpoint))
    return checkpoint


def _errors(study: Study, checkpoint: str, model: Path, prompts: Path) -> list[str]:
    """Return a line for each argument that cannot be used."""
    errors = []
    known = [*map(str, study.checkpoints())]
    if checkpoint not in known:
        errors.append(f"--checkpoint: unknown name {checkpoint!r}; known: {', '.join(known)}")
    elif not model.is_dir():
        errors.append(f"--model: {model} is no directory; run snakemake, or name the weights")
    if not prompts.is_file():
        errors.append(f"--prompts: {prompts} is no file; write it with `stapo prompts`")
    method = study.method(study.interventions.method)
    if method.spec.silenced is None or method.kl_coefficient > 0:
        errors.append(
            f"interventions.method: {study.interventions.method} silences no candidates, or has a KL "
            "term; choose another method"
        )
    return errors
