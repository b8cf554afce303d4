"""Published weights of trainings, as hard links: final ones, and those after steps that are evaluated.

A stage of its own, since git has the records of a training without its weights.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.stages.train import trained
from stapo.study import Checkpoint

AFTER = ("train",)


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each training."""
    study = of.study
    steps = study.kept_steps()
    for job, this in zip(of.all("train"), study.runs(), strict=True):
        points = (Checkpoint.of(this, step) for step in (None, *steps))
        places = tuple(paths.checkpoint_path(study.name, point) for point in points)
        yield Job("weights", job.name, {"steps": steps}, {"train": job}, weights=places)


def of_checkpoint(of: Jobs, checkpoint: Checkpoint) -> Job:
    """Return the job that makes the weights of a checkpoint, with what determines these weights alone."""
    if checkpoint.run is None:
        return of.one("base", checkpoint.size)
    training, own = of.one("train", checkpoint.run), {}
    if checkpoint.step is not None:
        own = {"weights_of": f"step{checkpoint.step}"}
    place = paths.checkpoint_path(of.study.name, checkpoint)
    settings = {**training.settings, **own}
    return replace(
        training, stage="weights", settings=settings, outputs=(), weights=(place,), also=None
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Publish the weights of trainings."""
    from stapo.training.publish import publish

    for job in jobs:
        places = [Path(place) for place in job.weights]
        publish(trained(next(job.sources)), places[0].parent, [place.name for place in places])
