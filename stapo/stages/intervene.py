"""Interventions: what one update of a checkpoint does with and without silencing."""

from collections.abc import Iterator
from pathlib import Path

from stapo import paths
from stapo.stages import Job, Jobs, Resources, recorded_in
from stapo.stages.train import (
    WITHOUT_EFFECT,
    method_settings,
    require_fit,
    training_settings,
)
from stapo.stages.weights import of_checkpoint
from stapo.study import Checkpoint

AFTER = ("prompts", "base", "weights")
RECIPE = 1
# One mini-batch is generated and used for one update at the full learning rate.
UNUSED = {"steps", "warmup_steps", "prompts_per_batch", "statistics", *WITHOUT_EFFECT}
"""Training settings without effect on a single update."""


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each checkpoint at which the study asks for interventions."""
    study, settings = of.study, of.study.interventions
    for checkpoint in study.intervened():
        yield Job(
            "intervene",
            str(checkpoint),
            {
                "recipe": RECIPE,
                "method": method_settings(study.method(settings.method)),
                "training": training_settings(study.training_of(settings.method), UNUSED),
                "end_tokens": sorted(set(study.end_tokens)),
                "interventions": settings.constants()
                | settings.model_dump(exclude={"checkpoints", "method"}),
            },
            {"checkpoint": of_checkpoint(of, checkpoint), "data": of.one("prompts", "")},
            tuple(
                paths.INTERVENTION.format(study=study.name, checkpoint=checkpoint, suffix=suffix)
                for suffix in paths.INTERVENTION_SUFFIXES
            ),
        )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Make single updates from the same weights and the same rollout, and measure what they change.

    One update each with nothing silenced, with S2T, and with equally many other tokens silenced: candidates
    drawn at random, tokens with A > 0 drawn at random, and the candidates of the highest entropy. After an
    interruption, only the repetition in progress is done again.
    """
    from stapo.gpus import take_gpus
    from stapo.training.intervene import InterventionJob, intervene

    study = of.study
    name = study.interventions.method
    for job in jobs:
        size = Checkpoint.parse(job.name).size
        if how.gpus is not None:
            take_gpus(how.gpus)
            require_fit(study, how.gpus)
        intervene(
            InterventionJob(
                config=job.config,
                fingerprint=job.fingerprint,
                checkpoint=job.name,
                settings=study.interventions,
                training=study.training_of(name),
                method=study.method(name),
                model=Path(paths.checkpoint_path(study.name, Checkpoint.parse(job.name))),
                prompts=Path(paths.PROMPTS.format(study=study.name)),
                work=Path(paths.INTERVENE_WORK.format(fingerprint=job.fingerprint)),
                out=Path(job.outputs[0]),
                engine=study.engine_of(size),
                end_tokens=study.end_tokens,
            )
        )


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the result."""
    return recorded_in(root / job.outputs[0]) if (root / job.outputs[1]).is_file() else None
