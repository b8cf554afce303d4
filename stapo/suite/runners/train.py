"""Trains, publishes weights, and makes single updates.

A training works in a directory that is named by its fingerprint: a changed setting cannot resume from another
run's checkpoint, changing it back costs nothing, and studies that have the same training share it.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS, changed_files, file_sha256
from stapo.core.files import json_of, link_tree, write
from stapo.suite import paths
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs.train import made_from, published, trained
from stapo.suite.locks import take_gpus, work_directory
from stapo.suite.runners import Resources, Runner
from stapo.suite.runners.prepare import check_overlap
from stapo.suite.study import Checkpoint, Study, StudyError
from stapo.suite.study.reading import published_content
from stapo.suite.training.launch import LAUNCHED, launch_training, require_fit

UNFINISHED = "STAPO_UNFINISHED"
"""Environment variable of the processes of a launch: the trainings that are left."""


def _run(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Train, resuming from the newest step checkpoint, and publish metrics and token records.

    With GPUs it starts itself again under `accelerate launch`, one process for each, for what is left.
    """
    names = os.environ.get(UNFINISHED)
    if names is not None:
        left = [job for job in selected if job.name in names.split()]
    elif LAUNCHED in os.environ:
        left = selected
    else:
        left = [job for job in selected if not _is_finished(jobs.study, job)]
    if not left:
        return
    if LAUNCHED not in os.environ:
        _launch(jobs.study, left, resources)
    for job in left:
        _train(jobs.study, job)
        _publish(job)
    from stapo.suite.training.run import leave

    leave()


def _is_finished(study: Study, job: Job) -> bool:
    """Return whether a training is finished, by this or another run, and publish what another one made."""
    place = _finished_at(study, job)
    if place is None:
        # Another study may be making it: wait for it before GPUs are leased.
        with work_directory(trained(job).parent, job.config):
            place = _finished_at(study, job)
    if place == trained(job):
        _publish(job)
    return place is not None


def _launch(study: Study, left: list[Job], resources: Resources) -> None:
    """Check the inputs of trainings, and replace this process by those that train, if there are others."""
    check_overlap(study)
    if resources.gpus is not None:
        require_fit(study, resources.gpus, resources.nodes)
        os.environ[UNFINISHED] = " ".join(job.name for job in left)
        launch_training(sys.argv[1:], resources.gpus, resources.nodes)
        del os.environ[UNFINISHED]


def _finished_at(study: Study, job: Job) -> Path | None:
    """Return where the results of a training are that is finished, None if there are none."""
    weights = ["model", *(f"step{step}" for step in study.kept_steps())]
    # The published results are all that there is in a folder that was copied without `work`.
    for place in (trained(job), published(job)):
        if finished(place, job.fingerprint, weights, *made_from(study, job)):
            print(f"all {study.training.steps} steps were done before: nothing to train")
            return place
    return None


def _train(study: Study, job: Job) -> None:
    from stapo.suite.training.run import TrainingJob, train

    (model, method, _), out = job.name.split("/"), trained(job)
    train(
        TrainingJob(
            **_given(study, job, model, method),
            seed=job.settings["seed"],
            base=made_from(study, job)[0],
            work=out.parent,
            out=out,
            kept_steps=study.kept_steps(),
            study=published_content(study),
        )
    )


def _given(study: Study, job: Job, model: str, method: str) -> dict[str, Any]:
    """Return what a training and single updates are given alike."""
    return {
        "config": job.config,
        "training": study.training_of(method),
        "method": study.method(method),
        "s2t": study.s2t(),
        "prompts": Path(paths.PROMPTS.format(study=study.name)),
        "engine": study.engine_of(model),
        "end_tokens": study.end_tokens,
    }


def _publish(job: Job) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        files = (paths.METRICS_FILE, paths.TOKENS_FILE, paths.RECORD_FILE)
        publish(trained(job), published(job), files, job.fingerprint)


def _publish_weights(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Publish the weights of trainings."""
    for job in selected:
        training, names = next(job.sources), [Path(place).name for place in job.weights]
        publish(trained(training), published(training), names, training.fingerprint)


def _intervene(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Make single updates from the same weights and rollout, and measure what they change.

    After an interruption, only the repetition in progress is done again.
    """
    from stapo.suite.interventions.intervene import intervene
    from stapo.suite.interventions.job import InterventionJob

    study = jobs.study
    if resources.gpus is not None:
        require_fit(study, resources.gpus)
    take_gpus(resources.gpus)
    for job in selected:
        model = Checkpoint.parse(job.name).model
        intervene(
            InterventionJob(
                **_given(study, job, model, study.interventions.method),
                checkpoint=job.name,
                settings=study.interventions,
                methods={name: study.method(name) for name in study.interventions.methods},
                model=Path(paths.checkpoint_path(study.name, Checkpoint.parse(job.name))),
                work=Path(paths.INTERVENE_WORK.format(fingerprint=job.fingerprint)),
                out=Path(job.outputs[0]),
            )
        )


def finished(
    trained: Path, fingerprint: str, names: Iterable[str], base: Path, prompts: Path
) -> bool:
    """Return whether a directory contains all undamaged outputs of a training with these inputs.

    `names` are those of its weights, such as `model` and `step4`; the base model may differ between machines.
    """
    record = json_of(trained / paths.RECORD_FILE)
    if record.get("fingerprint") != fingerprint:
        return False
    outputs, base_sums = record["outputs"], record["base"]
    # If the base model contains a file of checksums, comparing this file is enough.
    base_sums = {SUMS: base_sums[SUMS]} if SUMS in base_sums else base_sums
    return (
        prompts.is_file()
        and record["prompts"] == file_sha256(prompts)
        and {path.partition("/")[0] for path in outputs}
        >= {paths.METRICS_FILE, paths.TOKENS_FILE, *names}
        and not changed_files(base, base_sums)
        and not changed_files(trained, outputs)
    )


def publish(trained: Path, out: Path, names: Sequence[str], fingerprint: str) -> None:
    """Publish named files and directories of a training in the results.

    So that a failed or stopped job loses no weights, hard links are made once all of them are complete.
    Nothing is done if the work directory has lost some, and the results have all of them.

    Raises:
        StudyError: one line for each file that is missing or differs from what the training wrote.
    """
    ours, published = (json_of(folder / paths.RECORD_FILE) for folder in (trained, out))
    is_record = paths.RECORD_FILE in names
    if published.get("fingerprint") == fingerprint and not is_record:
        ours = published  # Weights are those of the published record.
    if wrong := _wrong(trained, ours, names):
        if published.get("fingerprint") == fingerprint and not _wrong(out, published, names):
            return
        remedy = (
            f"snakemake --forcerun {out / paths.RECORD_FILE} trains again, from the last checkpoint"
        )
        fault = "missing, truncated or corrupt"
        raise StudyError([f"{trained / path}: {fault}; {remedy}" for path in wrong])
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


RUNNERS: dict[str, Runner] = {
    "train": _run,
    "weights": _publish_weights,
    "intervene": _intervene,
}
