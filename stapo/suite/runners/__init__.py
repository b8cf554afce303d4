"""How jobs are done: `RUNNERS` of a file here has a function for each stage of the same file of `jobs`.

Functions import torch, pandas and the like where they need them: most jobs need few, and start sooner.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from stapo.core.checksums import damaged_file, file_sums
from stapo.core.files import write_json
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs import STAGES, jobs_of
from stapo.suite.results import UNFINISHED, is_unchanged, made_by, missing_inputs
from stapo.suite.study import Study, StudyError

COMPUTING = ("train", "intervene", "generate", "score")
"""Stages that compute with a model, on GPUs where there are some."""


@dataclass(frozen=True)
class Resources:
    """Where a job may run."""

    gpus: int | None = None
    """GPUs to lease; None: all, without lease."""
    nodes: int = 1


Runner = Callable[[Jobs, list[Job], Resources], None]
"""Does the work of some jobs of a stage."""


def runner_of(stage: str) -> Runner:
    """Return what does the work of a stage."""
    file = STAGES[stage].jobs.__module__.rpartition(".")[2]
    runner: Runner = import_module(f"{__name__}.{file}").RUNNERS[stage]
    return runner


def run(study: Study, stage: str, name: str, resources: Resources) -> None:
    """Do the work of the jobs of a stage with that name, or whose names begin with it.

    Raises:
        StudyError: there is no such job, or what it reads is missing.
    """
    all_jobs = jobs_of(study)
    jobs = all_jobs.select(stage, name)
    if errors := missing_inputs(jobs):
        raise StudyError(errors)
    # `stapo status` knows by it whose log it is.
    print(f"configuration {all_jobs.made_by(stage, name)}", flush=True)
    if STAGES[stage].is_costly:
        done = [job for job in jobs if _is_done(job)]
        jobs = [job for job in jobs if job not in done]
        for job in done:
            print(f"{job.name}: made before, with the same settings from the same files")
    first = os.environ.get("RANK", "0") == "0"
    # Without figures to draw, as of base models alone, a job writes nothing.
    writing = [job for job in jobs if job.written_files and first]
    read = {job: _sums(job.read_files) for job in writing}
    for job in read:
        # Until it is done, old results are none of the present settings.
        write_json(Path(job.record), {"made_by": UNFINISHED})
    if jobs:
        if study.run.algorithms == "deterministic" and stage in COMPUTING:
            compute_deterministically()
        runner_of(stage)(all_jobs, jobs, resources)
    for job, sums in read.items():
        if _sums(job.read_files) == sums:
            wrote = _sums(job.written_files)
            write_json(Path(job.record), {"made_by": job.param, "read": sums, "wrote": wrote})
        else:
            changed = "what it is made from changed meanwhile; run the same snakemake command again"
            print(f"{job.written_files[0]}: {changed}")


def compute_deterministically() -> None:
    """Let PyTorch use deterministic operations alone; one that has no such implementation raises an error."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # Otherwise cuBLAS raises one, too.
    import torch

    torch.use_deterministic_algorithms(True)
    # NaN in every new tensor: a training takes twice the time on a CPU, and gets the same bits.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _is_done(job: Job) -> bool:
    """Return whether the results of a job are there, whole, and what it would make."""
    is_damaged = any(damaged_file(Path(place)) for place in job.weights)
    return made_by(job) == job.param and is_unchanged(job) and not is_damaged


def _sums(files: Iterable[str]) -> dict[str, str]:
    return file_sums(Path(), [path for path in files if Path(path).is_file()])
