"""Trainings: from a base model and prompts to final weights, metrics and token records; single updates.

A training works in a directory that is named by its fingerprint: a changed setting cannot resume from another
run's checkpoint, changing it back costs nothing, and studies that have the same training share it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo.core.files import read_json
from stapo.core.methods import PARTS, Method, s2t_arguments
from stapo.suite import paths
from stapo.suite.answers import is_built_in
from stapo.suite.formulas import changed_formulas
from stapo.suite.job import Job, Jobs, Stage, recorded_in
from stapo.suite.study import Checkpoint, Study
from stapo.suite.study.functions import function_name
from stapo.suite.study.method_settings import FORMER_NAMES
from stapo.suite.study.schema import TrainingSettings

NAMES_OF_METHODS = ("title", "source", "revision")
"""What of a method changes no weights."""
WITHOUT_EFFECT = ("checkpoint_every", "keep_checkpoints", "evaluate_every", "token_records_mb")
"""Training settings that change neither weights nor metrics."""
# One mini-batch is generated and used for one update at the full learning rate.
UNUSED = {"steps", "warmup_steps", "prompts_per_batch", "statistics", *WITHOUT_EFFECT}
"""Training settings without effect on a single update."""


def method_settings(method: Method) -> dict[str, Any]:
    """Return what of a method determines weights; of a selection of a study's own, function and checksum."""
    names = ("clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip", "selection")
    settings = {name: getattr(method, name) for name in names} | method.settings
    settings |= {
        kind: FORMER_NAMES.get(settings[kind], settings[kind]) for kind in settings.keys() & PARTS
    }
    # Arguments are recorded as they are given: those of the selection, and if there are others, these.
    selecting = {name for part in PARTS["selection"].values() for name in part.arguments}
    taken = method.part("selection").arguments
    settings["selection_args"] = {k: v for k, v in method.args.items() if k in taken}
    if others := {k: v for k, v in method.args.items() if k not in selecting}:
        settings["part_args"] = others
    if method.is_own:
        settings["selection"] = function_name(method.selection_name)
        settings["selection_args"] = method.selection_args
        settings["selection_sha256"] = method.selection_sha256
    changed = changed_formulas(method)
    return settings | ({"formulas": changed} if changed else {})


def training_settings(training: TrainingSettings, without: set[str]) -> dict[str, Any]:
    """Return training settings; of a reward in a file, the function and not the place of the file."""
    settings = training.model_dump(exclude=without)
    if not is_built_in(training.reward):
        settings["reward"] = function_name(str(training.reward))
    return settings


def _trainings(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each training."""
    study = jobs.study
    for this in study.runs():
        method, training = study.method(this.method), study.training_of(this.method)
        without = {*WITHOUT_EFFECT}
        if method.reads == "none" and training.statistics == "behaviour":
            # They select nothing, and candidates are counted by the same.
            without.add("statistics")
        at = {"study": study.name, **this._asdict()}
        recorded = (paths.METRICS, paths.TOKENS, paths.RUN_PROVENANCE)
        yield Job(
            "train",
            str(this),
            {
                "recipe": 5,
                "method": method_settings(method),
                "training": training_settings(training, without),
                "end_tokens": sorted(set(study.end_tokens)),
                "seed": this.seed,
                **study.run.computing(),
            },
            {"base": jobs.job("base", this.model), "data": jobs.job("prompts")},
            tuple(path.format(**at) for path in recorded),
            rerun_on={"kept_steps": study.kept_steps()},
        )


def trained(job: Job) -> Path:
    """Return the directory in which a training writes its results, laid out as they are published."""
    return Path(paths.TRAIN_WORK.format(fingerprint=job.fingerprint)) / paths.TRAINED


def made_from(study: Study, job: Job) -> tuple[Path, Path]:
    """Return the base model and the prompts of a training."""
    at = {"study": study.name, "model": job.name.split("/")[0]}
    return Path(paths.BASE_MODEL.format(**at)), Path(paths.PROMPTS.format(**at))


def published(job: Job) -> Path:
    """Return where the results of a training are published."""
    return Path(job.outputs[0]).parent


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the record of a training; empty if intermediate weights are missing in it."""
    path = root / job.outputs[-1]
    fingerprint = recorded_in(path)
    outputs = read_json(path).get("outputs") if fingerprint else None
    kept = {str(name).partition("/")[0] for name in outputs} if isinstance(outputs, dict) else set()
    wanted = {f"step{step}" for step in job.rerun_on["kept_steps"]}
    return "" if fingerprint and not kept >= wanted else fingerprint


def _weights(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each training: its weights as hard links, which git has not beside its records."""
    study = jobs.study
    steps = study.kept_steps()
    for job, this in zip(jobs.all("train"), study.runs(), strict=True):
        points = (Checkpoint(*this, step) for step in (None, *steps))
        places = tuple(paths.checkpoint_path(study.name, point) for point in points)
        yield Job("weights", job.name, {"steps": steps}, {"train": job}, weights=places)


def of_checkpoint(jobs: Jobs, checkpoint: Checkpoint) -> Job:
    """Return the job that makes the weights of a checkpoint, with what determines these weights alone."""
    if checkpoint.run is None:
        return jobs.job("base", checkpoint.model)
    training = jobs.job("train", checkpoint.run)
    step = {} if checkpoint.step is None else {"weights_of": f"step{checkpoint.step}"}
    settings, place = training.settings | step, paths.checkpoint_path(jobs.study.name, checkpoint)
    return Job("weights", training.name, settings, training.reads, weights=(place,))


def _interventions(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each checkpoint at which the study asks for interventions."""
    study, settings = jobs.study, jobs.study.interventions
    for checkpoint in study.intervened():
        yield Job(
            "intervene",
            str(checkpoint),
            {
                "recipe": 1,
                "method": method_settings(study.method(settings.method)),
                "training": training_settings(study.training_of(settings.method), UNUSED),
                "end_tokens": sorted(set(study.end_tokens)),
                "interventions": settings.constants()
                | settings.model_dump(exclude={"checkpoints", "method", "methods"}),
                **_of_methods(study),
                **_counted(study, settings.method),
                **study.run.computing(),
            },
            {"checkpoint": of_checkpoint(jobs, checkpoint), "data": jobs.job("prompts")},
            tuple(
                paths.INTERVENTION.format(study=study.name, checkpoint=checkpoint, suffix=suffix)
                for suffix in paths.INTERVENTION_SUFFIXES
            ),
        )


def _of_methods(study: Study) -> dict[str, Any]:
    """Return what determines the updates by whole methods, empty without any."""
    section = study.interventions
    if not section.methods:
        return {}
    # That of the job, whose trainer makes these updates too.
    training = study.training_of(section.method)
    return {
        "methods": {name: method_settings(study.method(name)) for name in section.methods},
        "updates": section.updates(training.prompts_per_mini_batch),
        "statistics": training.statistics,
    }


def _counted(study: Study, name: str) -> dict[str, Any]:
    """Return S2T's arguments that determine candidates, empty where they are those of method and paper.

    In trainings they change counts alone, and are no reason to train again.
    """
    method = study.method(name)
    arguments = s2t_arguments(method, study.s2t())
    return {"s2t": arguments} if arguments != s2t_arguments(method) else {}


def recorded_intervention(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the result."""
    return recorded_in(root / job.outputs[0]) if (root / job.outputs[1]).is_file() else None


STAGES = {
    "train": Stage(("prompts", "base"), _trainings, recorded),
    "weights": Stage(("train",), _weights),
    "intervene": Stage(
        ("prompts", "base", "weights"), _interventions, recorded_intervention, is_costly=True
    ),
}
