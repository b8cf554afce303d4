"""Trainings: from a base model and prompts to final weights, metrics and token records.

A training works in a directory that is named by its fingerprint: a changed setting cannot resume from another
run's checkpoint, changing it back costs nothing, and studies that have the same training share it.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.files import read_json
from stapo.methods import Method
from stapo.stages import Job, Jobs, Resources, recorded_in
from stapo.study import Study, StudyError, TrainingRun
from stapo.study.code import function_name
from stapo.study.schema import TrainingSettings

AFTER = ("prompts", "base")
RECIPE = 4
NAMES_OF_METHODS = ("title", "source", "revision")
"""What of a method changes no weights."""
WITHOUT_EFFECT = ("checkpoint_every", "keep_checkpoints", "evaluate_every", "token_records_mb")
"""Training settings that change neither weights nor metrics."""


def method_settings(method: Method) -> dict[str, Any]:
    """Return what of a method determines weights; of a selection of a study's own, function and checksum."""
    found = {k: v for k, v in asdict(method).items() if k not in NAMES_OF_METHODS}
    if method.is_own:
        found["selection"] = function_name(method.selection)
    else:
        del found["selection_sha256"]
    # It changes what is counted and recorded, which says so, and no weights: another threshold of STAPO must
    # not train all baselines again.
    del found["s2t"]
    if (recipe := method.spec.recipe) > 1:
        found["selection_recipe"] = recipe
    return found


def training_settings(training: TrainingSettings, without: set[str]) -> dict[str, Any]:
    """Return training settings; of a reward in a file, the function and not the place of the file."""
    found = training.model_dump(exclude=without)
    if ":" in training.reward:
        found["reward"] = function_name(training.reward)
    return found


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each training."""
    study = of.study
    for this in study.runs():
        method, training = study.method(this.method), study.training_of(this.method)
        without = {*WITHOUT_EFFECT}
        if method.reads == "none" and training.statistics == "behaviour":
            without.add(
                "statistics"
            )  # They select nothing, and candidates are counted by the same.
        at = {"study": study.name, **this.wildcards}
        recorded = (paths.METRICS, paths.TOKENS, paths.RUN_PROVENANCE)
        yield Job(
            "train",
            str(this),
            {
                "recipe": RECIPE,
                "method": method_settings(method),
                "training": training_settings(training, without),
                "end_tokens": sorted(set(study.end_tokens)),
                "seed": this.seed,
            },
            {"base": of.one("base", this.size), "data": of.one("prompts", "")},
            tuple(path.format(**at) for path in recorded),
            also={"kept_steps": study.kept_steps()},
        )


def run_of(job: Job) -> TrainingRun:
    """Return the training of a job."""
    size, method, seed = job.name.rsplit("/", 2)
    return TrainingRun(size, method, int(seed.removeprefix("seed")))


def trained(job: Job) -> Path:
    """Return the directory in which a training writes its results, laid out as they are published."""
    return Path(paths.TRAIN_WORK.format(fingerprint=job.fingerprint)) / paths.TRAINED


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Train, resuming from the newest step checkpoint, and publish metrics and token records.

    With GPUs it starts itself again under `accelerate launch`, one process for each.
    """
    for job in jobs:
        if not _is_finished(of.study, job, how):
            _train(of.study, job)
        _publish(job)


def _is_finished(study: Study, job: Job, how: Resources) -> bool:
    """Return whether another run finished a training; otherwise check its inputs and launch its processes."""
    from stapo.training.launch import LAUNCHED
    from stapo.training.publish import finished

    if LAUNCHED in os.environ:
        return False
    weights = ["model", *(f"step{step}" for step in study.kept_steps())]
    if finished(trained(job), job.fingerprint, weights, *_made_from(study, job)):
        print(f"all {study.training.steps} steps were done before: nothing to train")
        return True
    from stapo.stages.overlap import check

    check(study)
    if how.gpus is not None:
        from stapo.training.launch import launch_training

        require_fit(study, how.gpus, how.nodes)
        launch_training(sys.argv[1:], how.gpus, how.nodes)
    return False


def require_fit(study: Study, gpus: int, nodes: int = 1) -> None:
    """Raise a `StudyError` if the GPUs cannot train as the study says."""
    from stapo.training.launch import training_errors

    if errors := training_errors(study, gpus, nodes):
        raise StudyError(errors)


def _made_from(study: Study, job: Job) -> tuple[Path, Path]:
    """Return the base model and the prompts of a training."""
    at = {"study": study.name, "size": run_of(job).size}
    return Path(paths.BASE_MODEL.format(**at)), Path(paths.PROMPTS.format(**at))


def _train(study: Study, job: Job) -> None:
    from stapo.study.reading import published_content
    from stapo.training.run import TrainingJob, leave, train

    this, out = run_of(job), trained(job)
    base, prompts = _made_from(study, job)
    train(
        TrainingJob(
            config=job.config,
            training=study.training_of(this.method),
            end_tokens=study.end_tokens,
            method=study.method(this.method),
            seed=this.seed,
            base=base,
            prompts=prompts,
            work=out.parent,
            out=out,
            kept_steps=study.kept_steps(),
            engine=study.engine_of(this.size),
            study=published_content(study),
        )
    )
    leave()


def _publish(job: Job) -> None:
    from stapo.training.publish import publish

    if int(os.environ.get("RANK", "0")) == 0:
        files = (paths.METRICS_FILE, paths.TOKENS_FILE, paths.RECORD_FILE)
        publish(trained(job), Path(job.outputs[0]).parent, files)


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the record of a training; empty if intermediate weights are missing in it."""
    path = root / job.outputs[-1]
    found = recorded_in(path)
    outputs = read_json(path).get("outputs") if found else None
    kept = {str(name).partition("/")[0] for name in outputs} if isinstance(outputs, dict) else set()
    wanted = {f"step{step}" for step in job.also["kept_steps"]}
    return "" if found and not kept >= wanted else found
