"""Time limits of cluster jobs, from the cost model of `stapo plan`.

A training that is told of its limit saves and ends (`stapo.training.progress`), and its next attempt
resumes: a limit that is too short costs time in the queue, but no steps.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil

from stapo.operations import costs
from stapo.operations.costs import DEVICES, Device
from stapo.study import Checkpoint, Study, StudyError, TrainingRun

MARGIN = 1.5
"""Requested time over estimated time, our choice: nothing in the cost model is measured on a GPU."""
LEAST_MINUTES = 30
"""Shortest limit, our choice: it covers slow file systems and the start of any job."""
UNKNOWN_SECONDS = 24 * 3600.0
"""Estimate where the shape of a model is unknown, our choice."""
MAX_NOTICE_SECONDS = 65_535
"""Slurm's maximum of the time in `--signal`."""


@dataclass(frozen=True)
class Cluster:
    """What a profile says about its cluster."""

    gpu: str = "h100"
    """Kind of GPU that the estimates assume."""
    gpus: int = 0
    """GPUs of one training; 0 means CPUs."""
    max_hours: float | None = None
    """Longest time that a job may request; None without a maximum."""

    def device(self, gpus: int) -> Device:
        """Return the device of a job with this number of GPUs.

        Raises:
            StudyError: the cost model does not know the kind of GPU.
        """
        if self.gpu not in DEVICES:
            raise StudyError([f"gpu_kind: unknown {self.gpu!r}; known: {', '.join(DEVICES)}"])
        return DEVICES[self.gpu if gpus else "cpu"]

    @property
    def most_minutes(self) -> float:
        """The longest time that a job may request, in minutes."""
        return float("inf") if self.max_hours is None else max(int(60 * self.max_hours), 1)


def train_minutes(study: Study, cluster: Cluster, run: TrainingRun) -> int:
    """Return the time limit of a training in minutes."""
    return _minutes(_train_seconds(study, cluster, run), cluster)


def notice_seconds(study: Study, cluster: Cluster, run: TrainingRun) -> int:
    """Return how long before its limit a training must be told, so that it can finish and save a step.

    The longest step contains a whole rollout. At most half of the limit, so that every attempt trains.
    """
    half = 30 * train_minutes(study, cluster, run)
    training = study.training_of(run.method)
    steps = training.prompts_per_batch / training.prompts_per_mini_batch
    try:
        longest = steps * _step_seconds(study, cluster, run)
        longest += costs.saving_seconds(study, run.size)
    except StudyError:
        return min(half, 3600)
    # Slurm looks once a minute.
    return min(ceil(MARGIN * longest) + 60, half, MAX_NOTICE_SECONDS)


def train_attempts(study: Study, cluster: Cluster) -> int:
    """Return how many attempts the longest training of a study needs."""
    return max(
        _attempts(_train_seconds(study, cluster, run), notice_seconds(study, cluster, run), cluster)
        for run in study.runs()
    )


def generate_minutes(study: Study, cluster: Cluster, checkpoint: Checkpoint, decoding: str) -> int:
    """Return the time limit in minutes of a checkpoint's responses under a decoding."""
    return _minutes(_generate_seconds(study, cluster, checkpoint, decoding), cluster)


def generate_attempts(study: Study, cluster: Cluster) -> int:
    """Return how many attempts the responses of the slowest size need; a kill loses little."""
    base, decoding = map(Checkpoint, study.run.sizes), study.run.decodings[0]
    return max(
        _attempts(_generate_seconds(study, cluster, one, decoding), 0, cluster) for one in base
    )


def intervene_minutes(study: Study, cluster: Cluster, checkpoint: Checkpoint) -> int:
    """Return the time limit in minutes of the interventions at a checkpoint."""
    device = cluster.device(study.gpus_of("intervene"))
    seconds = _known(lambda: costs.intervene_seconds(study, checkpoint.size, device))
    return _minutes(seconds, cluster)


def score_minutes(study: Study, cluster: Cluster, benchmark: str) -> int:
    """Return the time limit in minutes of the scores of one cell, with the verifier if there is one."""
    device, asked = cluster.device(study.gpus_of("score")), responses(study, [benchmark])
    return _minutes(_known(lambda: costs.score_seconds(study, device, asked)), cluster)


def responses(study: Study, benchmarks: Iterable[str]) -> int:
    """Return how many responses a checkpoint gives to benchmarks under one decoding."""
    return sum(study.problems(name) * study.benchmarks[name].samples for name in benchmarks)


def _minutes(seconds: float, cluster: Cluster) -> int:
    return int(min(max(ceil(MARGIN * seconds / 60), LEAST_MINUTES), cluster.most_minutes))


def _attempts(seconds: float, notice: float, cluster: Cluster) -> int:
    # A training ends at the notice, and each attempt starts anew.
    usable = 60 * cluster.most_minutes - notice - max(costs.START_SECONDS.values())
    return max(ceil(MARGIN * seconds / max(usable, 60)), 1)


def _step_seconds(study: Study, cluster: Cluster, run: TrainingRun) -> float:
    device, gpus = cluster.device(cluster.gpus), max(cluster.gpus, 1)
    return costs.study_step_seconds(study, run.size, run.method, device, gpus)


def _train_seconds(study: Study, cluster: Cluster, run: TrainingRun) -> float:
    cluster.device(cluster.gpus)  # An unknown kind of GPU is an error, an unknown model is not.

    def seconds() -> float:
        step = _step_seconds(study, cluster, run)
        return costs.training_seconds(study, run.size, run.method, study.training.steps, step)

    return _known(seconds)


def _generate_seconds(
    study: Study, cluster: Cluster, checkpoint: Checkpoint, decoding: str
) -> float:
    device = cluster.device(study.gpus_of("generate"))
    asked = responses(study, study.answered(checkpoint, decoding))
    return _known(lambda: costs.answer_seconds(study, checkpoint.size, device, asked))


def _known(seconds: Callable[[], float]) -> float:
    """Return an estimate, or a day where a model has an unknown shape before it is downloaded."""
    try:
        return seconds()
    except StudyError:
        return UNKNOWN_SECONDS
