"""What a study costs before anything is spent: jobs, device time, tokens, disk, wall time.

It informs and refuses nothing. Estimates are those of `costs`; how long a training that runs still takes is
in `stapo status`, by its own metrics.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.models.shapes import shape_of
from stapo.operations import costs
from stapo.operations.costs import DEVICES, STATES_PER_PARAMETER, WEIGHT_BYTES, Device
from stapo.operations.status import span, table_of
from stapo.stages import Job, jobs_of
from stapo.study import Checkpoint, Study, StudyError
from stapo.study.sources import TinyModel
from stapo.training.launch import training_errors

STATE_BYTES = 4 * WEIGHT_BYTES
"""Of a parameter in a training: weight, gradient and both of Adam's moments, sharded over its GPUs."""
STAGES = ("base", "train", "intervene", "generate", "score")
"""Stages with costs of their own."""
ESTIMATED = (
    "estimated from the assumptions in stapo/operations/costs.py, none of them measured on GPUs"
)


@dataclass(frozen=True)
class Machine:
    """Devices of one kind: `gpus` for each training, `total` at hand."""

    device: Device
    gpus: int = 1
    total: int = 1


@dataclass(frozen=True)
class CostRow:
    """What the jobs of one kind cost."""

    stage: str
    what: str
    jobs: int
    hours: float = 0.0
    """Of all jobs, one after another."""
    devices: int = 0
    """Of one job; 0 where a CPU core is enough."""
    tokens: float = 0.0
    """To be generated."""
    disk: float = 0.0
    """Bytes of the results, and of one step checkpoint of each training."""


def machine(
    study: Study, gpu: str | None = None, gpus: int | None = None, total: int | None = None
) -> Machine:
    """Return a machine by the name of its device.

    Args:
        study: what is to run on it.
        gpu: name; None: h200, or cpu for tiny models that need no GPU.
        gpus: of one training; None: the fewest, a power of two, with enough memory.
        total: of all trainings side by side; None: those of one training.

    Raises:
        StudyError: unknown device.
    """
    on_cpus = study.training.rollouts == "transformers" and study.evaluation.backend == "hf"
    tiny = on_cpus and all(isinstance(study.models[size], TinyModel) for size in study.run.sizes)
    device = DEVICES.get(gpu or ("cpu" if tiny else "h200"))
    if device is None:
        raise StudyError([f"--gpu: unknown device {gpu!r}; known: {', '.join(DEVICES)}"])
    if not device.is_gpu:
        return Machine(device)
    if gpus is None:
        powers = [2**power for power in range(11)]
        gpus = next((n for n in powers if not doubts(study, device, n)), 1)
    return Machine(device, gpus, max(total or gpus, gpus))


def doubts(study: Study, device: Device, gpus: int) -> list[str]:
    """Return why a training may not run on so many GPUs, one line each."""
    found = training_errors(study, gpus)
    for size in study.run.sizes:
        state = STATE_BYTES * shape_of(study.models[size]).parameters / gpus
        if study.run.methods and state > device.memory / 2:
            each = f"{state / 1e9:.0f} GB on each of {gpus} GPUs of {device.memory / 1e9:.0f} GB"
            found.append(
                f"models.{size}: weights, gradients and Adam's moments take {each}; use more"
            )
    return found


def plan(study: Study, on: Machine) -> list[CostRow]:
    """Return what a study costs, row by row in the order of the stages.

    Raises:
        StudyError: models of unknown shape.
    """
    for size in study.run.sizes:  # An unknown one is said before anything is computed.
        shape_of(study.models[size])
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in (job for job in jobs_of(study) if job.stage in STAGES):
        size, *rest = job.name.split("/")
        if job.stage == "train":
            size = f"{size} {rest[0]}"
        elif job.stage in ("generate", "score"):
            checkpoint = job.name.rsplit("/", 1 if job.stage == "generate" else 2)[0]
            size += "" if study.is_full(Checkpoint.parse(checkpoint)) else " curve"
        groups.setdefault((job.stage, size), []).append(job)
    return [_row(study, on, *key, own) for key, own in groups.items()]


def _row(study: Study, on: Machine, stage: str, what: str, own: list[Job]) -> CostRow:
    size, _, method = what.partition(" ")
    seconds, devices, tokens, disk = 0.0, 0, 0.0, 0.0  # Of one job.
    if stage == "base":
        judge = study.evaluation.verifier
        model = judge if judge and size == "verifier" else study.models[size]
        disk = WEIGHT_BYTES * shape_of(model).parameters
    elif stage == "train":
        training, devices = study.training_of(method), on.gpus
        seconds = costs.training_seconds(study, size, method, on.device, on.gpus)
        responses = training.steps * training.prompts_per_mini_batch * training.group_size
        tokens = responses * costs.MEAN_LENGTH * training.max_response_tokens
        weights = WEIGHT_BYTES * shape_of(study.models[size]).parameters
        disk = weights * (1 + len(study.kept_steps()) + STATES_PER_PARAMETER)
    elif stage == "intervene":
        devices = max(study.gpus_of(stage), 1)
        seconds = costs.intervene_seconds(study, size, on.device)
    elif stage == "generate":
        devices = max(study.gpus_of(stage), 1)
        responses = sum(study.problems(name) * one["samples"] for name, one in own[0].also.items())
        seconds = costs.answer_seconds(study, size, on.device, responses)
        tokens = responses * costs.MEAN_LENGTH * study.evaluation.max_response_tokens
        disk = 2 * tokens * costs.TEXT_BYTES  # In work and in results.
    n = len(own)
    return CostRow(stage, what, n, n * seconds / 3600, devices, n * tokens, n * disk)


def wall_hours(rows: Sequence[CostRow], on: Machine) -> float:
    """Return the wall time of the rows of one stage on a machine that does nothing else.

    As many jobs run at once as there are devices, and all take their mean time; those without a device take
    no time.
    """
    jobs, hours = sum(row.jobs for row in rows), sum(row.hours for row in rows)
    if not hours:
        return 0.0
    at_once = max(min(on.total // max(row.devices for row in rows), jobs), 1)
    return ceil(jobs / at_once) * hours / jobs


def total_hours(rows: Iterable[CostRow], on: Machine) -> float:
    """Return the wall time of all rows, one stage after another."""
    return sum(wall_hours(list(own), on) for _, own in groupby(rows, lambda row: row.stage))


def _device_hours(rows: Iterable[CostRow]) -> float:
    return sum(row.hours * row.devices for row in rows)


def disk_needed(study: Study) -> int | None:
    """Return the bytes that a study writes in all; None if a model has an unknown shape."""
    try:
        return int(sum(row.disk for row in plan(study, Machine(DEVICES["h200"]))))
    except StudyError:
        return None


def plan_document(study: Study, on: Machine) -> dict[str, Any]:
    """Return the document of `stapo plan --json`, with a warning for each doubt that trainings may run."""
    return {
        "study": study.name,
        "gpu": on.device.name,
        "gpus": on.gpus,
        "total_gpus": on.total,
        "rows": [vars(row) for row in plan(study, on)],
        "warnings": doubts(study, on.device, on.gpus) if on.device.is_gpu else [],
    }


def print_plan(study: Study, on: Machine, console: Console) -> None:
    """Print what a study costs in all, then by stage, and what the numbers rest on."""
    document, name = plan_document(study, on), on.device.name
    rows = [CostRow(**row) for row in document["rows"]]
    tokens, disk = sum(row.tokens for row in rows), sum(row.disk for row in rows)
    title = (
        f"{study.name} on {on.total} x {name}, {on.gpus} for each training: "
        f"{span(3600 * total_hours(rows, on))}, {span(3600 * _device_hours(rows))} of {name}, "
        f"{tokens:.1e} tokens, {_size(disk)} of disk"
    )
    console.print(Text(title), soft_wrap=True)
    for line in document["warnings"]:
        console.print(Text(f"warning: {line}"), style="yellow", soft_wrap=True)
    table = table_of("", "stage", "jobs", f"{name} time", "tokens", "disk", "wall")
    for row in rows:
        wall = span(3600 * wall_hours([row], on))
        generated = f"{row.tokens:.1e}" if row.tokens else "-"
        spent = span(3600 * _device_hours([row]))
        table.add_row(
            f"{row.stage} {row.what}", str(row.jobs), spent, generated, _size(row.disk), wall
        )
    console.print(table)
    console.print(Text(ESTIMATED), style="dim", soft_wrap=True)


def _size(num_bytes: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= unit / 10:
            return f"{num_bytes / unit:.{0 if num_bytes >= 100 * unit else 1}f} {name}"
    return "-"
