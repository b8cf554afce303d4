"""Trainings: from a base model and prompts to final weights, metrics and token records; single updates.

A training works in a directory that is named by its fingerprint: a changed setting cannot resume from another
run's checkpoint, changing it back costs nothing, and studies that have the same training share it.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS, changed_files, file_sha256
from stapo.core.files import DamagedFileError, link_tree, read_json, write
from stapo.core.methods import OF_RIVALS, Method
from stapo.suite import paths
from stapo.suite.answers import is_built_in
from stapo.suite.locks import take_gpus
from stapo.suite.stages import Job, Jobs, Resources, Stage, recorded_in
from stapo.suite.study import Checkpoint, Study, StudyError
from stapo.suite.study.files import function_name
from stapo.suite.study.reading import published_content
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
    found = {k: v for k, v in asdict(method).items() if k not in {*NAMES_OF_METHODS, *OF_RIVALS}}
    found |= method.settings
    if method.is_own:
        found["selection"] = function_name(method.selection_name)
    else:
        del found["selection_sha256"]
    # It changes what is counted and recorded, which says so, and no weights: another threshold of STAPO must
    # not train all baselines again.
    del found["s2t"]
    return found


def training_settings(training: TrainingSettings, without: set[str]) -> dict[str, Any]:
    """Return training settings; of a reward in a file, the function and not the place of the file."""
    found = training.model_dump(exclude=without)
    if not is_built_in(training.reward):
        found["reward"] = function_name(str(training.reward))
    return found


def _trainings(of: Jobs) -> Iterator[Job]:
    """Yield a job for each training."""
    study = of.study
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
            },
            {"base": of.one("base", this.size), "data": of.one("prompts", "")},
            tuple(path.format(**at) for path in recorded),
            also={"kept_steps": study.kept_steps()},
        )


def trained(job: Job) -> Path:
    """Return the directory in which a training writes its results, laid out as they are published."""
    return Path(paths.TRAIN_WORK.format(fingerprint=job.fingerprint)) / paths.TRAINED


def _run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Train, resuming from the newest step checkpoint, and publish metrics and token records.

    With GPUs it starts itself again under `accelerate launch`, one process for each.
    """
    started = False
    for job in jobs:
        found = _finished_at(of.study, job, how)
        if found is None:
            _train(of.study, job)
            started = True
        if found != _published(job):
            _publish(job)
    if started:
        from stapo.suite.training.run import leave

        leave()


def _finished_at(study: Study, job: Job, how: Resources) -> Path | None:
    """Return where the results of a training are that another run finished.

    Otherwise check its inputs and launch its processes.
    """
    from stapo.suite.training.launch import LAUNCHED, launch_training, require_fit

    if LAUNCHED in os.environ:
        return None
    weights = ["model", *(f"step{step}" for step in study.kept_steps())]
    # The published results are all that there is in a folder that was copied without `work`.
    for place in (trained(job), _published(job)):
        if finished(place, job.fingerprint, weights, *_made_from(study, job)):
            print(f"all {study.training.steps} steps were done before: nothing to train")
            return place
    from stapo.suite.stages.prepare import check_overlap

    check_overlap(study)
    if how.gpus is not None:
        require_fit(study, how.gpus, how.nodes)
        launch_training(sys.argv[1:], how.gpus, how.nodes)
    return None


def _made_from(study: Study, job: Job) -> tuple[Path, Path]:
    """Return the base model and the prompts of a training."""
    at = {"study": study.name, "size": job.name.split("/")[0]}
    return Path(paths.BASE_MODEL.format(**at)), Path(paths.PROMPTS.format(**at))


def _train(study: Study, job: Job) -> None:
    from stapo.suite.training.run import TrainingJob, train

    (size, method, _), out = job.name.split("/"), trained(job)
    train(
        TrainingJob(
            **_given(study, job, size, method),
            seed=job.settings["seed"],
            base=_made_from(study, job)[0],
            work=out.parent,
            out=out,
            kept_steps=study.kept_steps(),
            study=published_content(study),
        )
    )


def _given(study: Study, job: Job, size: str, method: str) -> dict[str, Any]:
    """Return what a training and single updates are given alike."""
    from stapo.suite.training.selections import with_selection

    return {
        "config": job.config,
        "training": study.training_of(method),
        "method": with_selection(study.method(method)),
        "prompts": Path(paths.PROMPTS.format(study=study.name)),
        "engine": study.engine_of(size),
        "end_tokens": study.end_tokens,
    }


def _published(job: Job) -> Path:
    """Return where the results of a training are published."""
    return Path(job.outputs[0]).parent


def _publish(job: Job) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        files = (paths.METRICS_FILE, paths.TOKENS_FILE, paths.RECORD_FILE)
        publish(trained(job), _published(job), files, job.fingerprint)


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the record of a training; empty if intermediate weights are missing in it."""
    path = root / job.outputs[-1]
    found = recorded_in(path)
    outputs = read_json(path).get("outputs") if found else None
    kept = {str(name).partition("/")[0] for name in outputs} if isinstance(outputs, dict) else set()
    wanted = {f"step{step}" for step in job.also["kept_steps"]}
    return "" if found and not kept >= wanted else found


def _weights(of: Jobs) -> Iterator[Job]:
    """Yield a job for each training: its weights as hard links, which git has not beside its records."""
    study = of.study
    steps = study.kept_steps()
    for job, this in zip(of.all("train"), study.runs(), strict=True):
        points = (Checkpoint(*this, step) for step in (None, *steps))
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


def _publish_weights(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Publish the weights of trainings."""
    for job in jobs:
        training, names = next(job.sources), [Path(place).name for place in job.weights]
        publish(trained(training), _published(training), names, training.fingerprint)


def _interventions(of: Jobs) -> Iterator[Job]:
    """Yield a job for each checkpoint at which the study asks for interventions."""
    study, settings = of.study, of.study.interventions
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
            },
            {"checkpoint": of_checkpoint(of, checkpoint), "data": of.one("prompts", "")},
            tuple(
                paths.INTERVENTION.format(study=study.name, checkpoint=checkpoint, suffix=suffix)
                for suffix in paths.INTERVENTION_SUFFIXES
            ),
        )


def _of_methods(study: Study) -> dict[str, Any]:
    """Return what determines the updates by whole methods, empty without any."""
    section = study.interventions
    # That of the job, whose trainer makes these updates too.
    training = study.training_of(section.method)
    if not section.methods:
        return {}
    return {
        "methods": {name: method_settings(study.method(name)) for name in section.methods},
        "updates": training.prompts_per_batch // training.prompts_per_mini_batch,
        "statistics": training.statistics,
    }


def _intervene(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Make single updates from the same weights and rollout, and measure what they change.

    After an interruption, only the repetition in progress is done again.
    """
    from stapo.suite.training.intervene import InterventionJob, intervene
    from stapo.suite.training.launch import require_fit
    from stapo.suite.training.selections import with_selection

    study = of.study
    take_gpus(how.gpus)
    for job in jobs:
        size = Checkpoint.parse(job.name).size
        if how.gpus is not None:
            require_fit(study, how.gpus)
        intervene(
            InterventionJob(
                **_given(study, job, size, study.interventions.method),
                checkpoint=job.name,
                settings=study.interventions,
                methods={
                    name: with_selection(study.method(name)) for name in study.interventions.methods
                },
                model=Path(paths.checkpoint_path(study.name, Checkpoint.parse(job.name))),
                work=Path(paths.INTERVENE_WORK.format(fingerprint=job.fingerprint)),
                out=Path(job.outputs[0]),
            )
        )


def recorded_intervention(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the result."""
    return recorded_in(root / job.outputs[0]) if (root / job.outputs[1]).is_file() else None


def finished(
    trained: Path, fingerprint: str, names: Iterable[str], base: Path, prompts: Path
) -> bool:
    """Return whether a directory contains all undamaged outputs of a training with these inputs.

    `names` are those of its weights, such as `model` and `step4`; the base model may differ between machines.
    """
    record = _record(trained)
    if record.get("fingerprint") != fingerprint:
        return False
    outputs, of = record["outputs"], record["base"]
    # If the base model contains a file of checksums, comparing this file is enough.
    of = {SUMS: of[SUMS]} if SUMS in of else of
    return (
        prompts.is_file()
        and record["prompts"] == file_sha256(prompts)
        and {path.partition("/")[0] for path in outputs}
        >= {paths.METRICS_FILE, paths.TOKENS_FILE, *names}
        and not changed_files(base, of)
        and not changed_files(trained, outputs)
    )


def publish(trained: Path, out: Path, names: Sequence[str], fingerprint: str) -> None:
    """Publish named files and directories of a training in the results.

    So that a failed or stopped job loses no weights, hard links are made once all of them are complete.
    Nothing is done if the work directory has lost some, and the results have all of them.

    Raises:
        StudyError: one line for each file that is missing or differs from what the training wrote.
    """
    ours, published = _record(trained), _record(out)
    is_record = paths.RECORD_FILE in names
    if published.get("fingerprint") == fingerprint and not is_record:
        ours = published  # Weights are those of the published record.
    if wrong := _wrong(trained, ours, names):
        if published.get("fingerprint") == fingerprint and not _wrong(out, published, names):
            return
        remedy = (
            f"snakemake --forcerun {out / paths.RECORD_FILE} trains again, from the last checkpoint"
        )
        about = "missing, truncated or corrupt"
        raise StudyError([f"{trained / path}: {about}; {remedy}" for path in wrong])
    for name in names:
        source = trained / name
        if source.is_dir():
            link_tree(source, out / name)
        else:
            write(out / name, source.read_bytes())


def _wrong(directory: Path, record: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return what is missing, or not as a record says, of named results of a training in a directory."""
    outputs = record.get("outputs", {})
    stated = {p: sha for p, sha in outputs.items() if p.partition("/")[0] in names}
    there = {paths.RECORD_FILE, *(path.partition("/")[0] for path in stated)}
    return [*changed_files(directory, stated), *(name for name in names if name not in there)]


def _record(trained: Path) -> dict[str, Any]:
    with suppress(OSError, DamagedFileError):
        return read_json(trained / paths.RECORD_FILE)
    return {}


STAGES = {
    "train": Stage(("prompts", "base"), _trainings, _run, recorded),
    "weights": Stage(("train",), _weights, _publish_weights),
    "intervene": Stage(
        ("prompts", "base", "weights"),
        _interventions,
        _intervene,
        recorded_intervention,
        is_costly=True,
    ),
}
