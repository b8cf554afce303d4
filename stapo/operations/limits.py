"""Time limits of cluster jobs, from the cost model of `stapo plan`.

A training that is told of its limit saves and ends (`stapo.training.progress`), and its next attempt
resumes: a limit that is too short costs time in the queue, but no steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from stapo.models.shapes import Shape, shape_of
from stapo.operations import costs
from stapo.operations.costs import DEVICES, Device
from stapo.study import Checkpoint, Study, StudyError, TrainingRun

MARGIN = 1.5
"""Requested time over estimated time, our choice: nothing in the cost model is measured on a GPU."""
LEAST_MINUTES = 30
"""Shortest limit, our choice: it covers slow file systems and the start of any job."""
UNKNOWN_HOURS = 24.0
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


def train_minutes(study: Study, cluster: Cluster, run: TrainingRun) -> int:
    """Return the time limit of a training in minutes."""
    return _minutes(_train_seconds(study, cluster, run), cluster)


def notice_seconds(study: Study, cluster: Cluster, run: TrainingRun) -> int:
    """Return how long before its limit a training must be told, so that it can finish and save a step.

    The longest step contains a whole rollout. At most half of the limit, so that every attempt trains.
    """
    half = 30 * train_minutes(study, cluster, run)
    shape, training = _shape(study, run.size), study.training_of(run.method)
    if shape is None:
        return min(half, 3600)
    steps = training.prompts_per_batch / training.prompts_per_mini_batch
    longest = steps * _step_seconds(study, cluster, run, shape)
    saving = costs.saving_seconds(shape)
    # Slurm looks once a minute.
    return min(ceil(MARGIN * (longest + saving)) + 60, half, MAX_NOTICE_SECONDS)


def train_attempts(study: Study, cluster: Cluster) -> int:
    """Return how many attempts the longest training of a study needs."""
    return max(
        _attempts(_train_seconds(study, cluster, run), notice_seconds(study, cluster, run), cluster)
        for run in study.runs()
    )


def generate_minutes(study: Study, cluster: Cluster, checkpoint: Checkpoint, decoding: str) -> int:
    """Return the time limit in minutes of a checkpoint's responses under a decoding."""
    return _minutes(_generate_seconds(study, cluster, checkpoint, decoding), cluster)


def intervene_minutes(study: Study, cluster: Cluster, checkpoint: Checkpoint) -> int:
    """Return the time limit in minutes of the interventions at a checkpoint."""
    shape, device = _shape(study, checkpoint.size), cluster.device(study.gpus_of("intervene"))
    if shape is None:
        return _minutes(UNKNOWN_HOURS * 3600, cluster)
    return _minutes(costs.intervene_seconds(study, checkpoint.size, shape, device), cluster)


def generate_attempts(study: Study, cluster: Cluster) -> int:
    """Return how many attempts the responses of the slowest size need; a kill loses little."""
    base = (Checkpoint(size) for size in study.run.sizes)
    decoding = study.run.decodings[0]
    return max(
        _attempts(_generate_seconds(study, cluster, one, decoding), 0, cluster) for one in base
    )


def score_minutes(study: Study, cluster: Cluster, benchmark: str) -> int:
    """Return the time limit in minutes of the scores of one cell, with the verifier if there is one."""
    evaluation = study.evaluation
    responses = _responses(study, [benchmark])
    seconds = costs.JOB_SECONDS + responses / costs.GRADED_PER_SECOND
    if evaluation.verifier:
        length = _prompt(study) + costs.mean_length(evaluation.max_response_tokens)
        device = cluster.device(study.gpus_of("score"))
        try:
            shape = shape_of(evaluation.verifier)
        except StudyError:
            return _minutes(UNKNOWN_HOURS * 3600, cluster)
        start = costs.START_SECONDS["vllm" if evaluation.backend == "vllm" else "transformers"]
        seconds += start
        seconds += costs.judge_seconds(shape, evaluation.verifier, device, responses, length)
    return _minutes(seconds, cluster)


def _minutes(seconds: float, cluster: Cluster) -> int:
    wanted = max(ceil(MARGIN * seconds / 60), LEAST_MINUTES)
    return wanted if cluster.max_hours is None else min(wanted, _most(cluster))


def _most(cluster: Cluster) -> int:
    return max(int(60 * (cluster.max_hours or 0)), 1)


def _attempts(seconds: float, notice: float, cluster: Cluster) -> int:
    if cluster.max_hours is None:
        return 1
    start = max(costs.START_SECONDS.values())
    # A training ends at the notice, and each attempt starts anew.
    usable = max(60 * _most(cluster) - notice - start, 60)
    return max(ceil(MARGIN * seconds / usable), 1)


def _train_seconds(study: Study, cluster: Cluster, run: TrainingRun) -> float:
    shape, training = _shape(study, run.size), study.training_of(run.method)
    if shape is None:
        return UNKNOWN_HOURS * 3600
    saving = training.steps / training.checkpoint_every * costs.saving_seconds(shape)
    steps = training.steps * _step_seconds(study, cluster, run, shape)
    return costs.training_start_seconds(training) + steps + saving


def _step_seconds(study: Study, cluster: Cluster, run: TrainingRun, shape: Shape) -> float:
    device, gpus = cluster.device(cluster.gpus), max(cluster.gpus, 1)
    return costs.training_step_seconds(study, run.size, run.method, shape, device, gpus)


def _generate_seconds(
    study: Study, cluster: Cluster, checkpoint: Checkpoint, decoding: str
) -> float:
    shape = _shape(study, checkpoint.size)
    if shape is None:
        return UNKNOWN_HOURS * 3600
    responses = _responses(study, study.answered(checkpoint, decoding))
    device = cluster.device(study.gpus_of("generate"))
    return costs.answer_seconds(
        shape, study.evaluation, study.engine, device, responses, _prompt(study)
    )


def _responses(study: Study, benchmarks: Iterable[str]) -> int:
    return sum(study.problems(name) * study.benchmarks[name].samples for name in benchmarks)


def _prompt(study: Study) -> float:
    return costs.PROMPT_LENGTH * study.training.max_prompt_tokens


def _shape(study: Study, size: str) -> Shape | None:
    """Return the shape of a size, None where it is unknown before the model is downloaded."""
    try:
        return shape_of(study.model(size))
    except StudyError:
        return None
