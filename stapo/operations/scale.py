"""How to divide GPUs among trainings, and engine settings for each size, by the cost model.

More GPUs for one training make its rollout shorter only until the longest response bounds it: then engines
run with few responses, each step reads all weights for them, and GPU-hours rise. Only numbers of GPUs are
considered that fit into memory, divide the mini-batch and are whole vLLM engines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from stapo.models.shapes import Shape, shape_of, shapes_of
from stapo.operations import costs
from stapo.operations.costs import Device
from stapo.study import Study
from stapo.study.schema import EngineSettings
from stapo.training.memory import (
    has_reference,
    host_memory,
    least_vllm,
    memory_per_gpu,
    mini_batch_divisor,
    peak_memory,
    vllm_bytes,
)

TOTALS = (8, 64, 512)
"""Numbers of GPUs for which a division is recommended."""
SHARES = tuple(share / 20 for share in range(4, 18))
"""Memory shares of vLLM that are tried: 0.2 to 0.85."""
HEADROOM = 0.1
"""Share of the memory that recommended settings leave free: the estimate has an error."""
NEARLY = 1.05
"""Time of a step over the least possible that is accepted for simpler settings: the model is not exact."""
TENSOR_PARALLEL = (1, 2, 4, 8)
BUDGETS = (16384, 32768, 65536)
"""Token budgets of a micro-batch that are tried."""


@dataclass(frozen=True)
class Division:
    """GPUs for each training of each size, on a number of GPUs in all."""

    total: int
    gpus: tuple[int, ...]
    """Of one training, for each size."""
    at_once: int
    """Most trainings side by side."""
    gpu_hours: float
    wall_hours: float


def fits(
    study: Study,
    shape: Shape,
    engine: EngineSettings,
    gpus: int,
    memory: float,
    headroom: float = 0.0,
) -> bool:
    """Return whether a training of a size fits into GPUs of `memory` bytes with these engine settings."""
    share = vllm_bytes(study.training, engine, memory) * engine.vllm_tensor_parallel
    if 0 < share < least_vllm(shape, study.training):
        return False
    phases = memory_per_gpu(shape, study.training, engine, gpus, memory, has_reference(study))
    return peak_memory(phases) <= (1 - headroom) * memory


def choices(study: Study, size: str, shape: Shape, device: Device, most: int) -> list[int]:
    """Return the numbers of GPUs, at most `most`, on which a training of a size can run."""
    batch, engine, whole = mini_batch_divisor(study), study.engine_of(size), 1
    if study.training.rollouts == "vllm-colocate":
        whole = engine.vllm_tensor_parallel
    numbers = (gpus for gpus in range(whole, most + 1, whole) if batch % gpus == 0)
    return [gpus for gpus in numbers if fits(study, shape, engine, gpus, device.memory)]


def training_hours(study: Study, size: str, method: str, device: Device, gpus: int) -> float:
    """Return the hours of one training."""
    shape = shape_of(study.model(size))
    step = costs.training_step_seconds(study, size, method, shape, device, gpus)
    return study.training_of(method).steps * step / 3600


def wall_hours(jobs: list[tuple[float, int]], total: int) -> tuple[float, int]:
    """Return when the last job ends, and how many run at once at most: the longest ones start first.

    Args:
        jobs: hours and GPUs of each job.
        total: GPUs in all, at least those of any job.
    """
    running: list[tuple[float, int]] = []
    now, free, most = 0.0, total, 0
    for hours, gpus in sorted(jobs, reverse=True):
        while free < gpus:
            running.sort()
            now, freed = running.pop(0)
            free += freed
        running.append((now + hours, gpus))
        free -= gpus
        most = max(most, len(running))
    return max((end for end, _ in running), default=0.0), most


def divisions(study: Study, device: Device, total: int) -> Iterator[Division]:
    """Yield all divisions of a number of GPUs; none if some size does not fit."""
    shapes = shapes_of(study)
    options = [choices(study, size, shape, device, total) for size, shape in shapes.items()]

    @cache
    def hours(size: str, method: str, gpus: int) -> float:
        return training_hours(study, size, method, device, gpus)

    for gpus in product(*options):
        jobs = [
            (hours(size, method, own), own)
            for size, own in zip(shapes, gpus, strict=True)
            for method in study.run.methods
            for _ in study.run.seeds
        ]
        wall, most = wall_hours(jobs, total)
        yield Division(total, gpus, most, sum(time * own for time, own in jobs), wall)


def best_engine(study: Study, shape: Shape, device: Device, gpus: int) -> EngineSettings | None:
    """Return the study's engine settings with tensor parallelism and memory share that make steps fast.

    They leave a part of the memory free (`HEADROOM`). Of those that are nearly the fastest (`NEARLY`) they
    are the ones with the lowest tensor parallelism, then the smallest share. None if nothing fits.
    """
    found = []
    for parallel, share in product(TENSOR_PARALLEL, SHARES):
        new = {"vllm_tensor_parallel": parallel, "vllm_gpu_memory": share}
        engine = study.engine.model_copy(update=new)
        if gpus % parallel == 0 and fits(study, shape, engine, gpus, device.memory, HEADROOM):
            step = costs.step_seconds(shape, study.training, engine, device, gpus)
            found.append((step, engine))
    enough = NEARLY * min((step for step, _ in found), default=0.0)
    return next((engine for step, engine in found if step <= enough), None)


def largest_budget(
    study: Study, shape: Shape, engine: EngineSettings, device: Device, gpus: int
) -> int | None:
    """Return the largest of `BUDGETS` with which a training fits, with room to spare."""

    def fitting(budget: int) -> bool:
        training = study.training.model_copy(update={"micro_batch_tokens": budget})
        changed = study.model_copy(update={"training": training})
        return fits(changed, shape, engine, gpus, device.memory, HEADROOM)

    return max((budget for budget in BUDGETS if fitting(budget)), default=None)


def recommendation(study: Study, device: Device) -> tuple[Table, list[str]]:
    """Return the table of divisions, and one line about the engine settings of each size."""
    shapes = shapes_of(study)
    title = f"{study.name}: trainings on {device.name}, GPUs of each for {', '.join(shapes)}"
    table = Table(title=Text(title), box=SIMPLE_HEAD)
    for heading in ("GPUs in all", "", "of each", "side by side", "GPU-hours", "wall days"):
        table.add_column(heading, justify="left" if not heading else "right")
    for total in TOTALS:
        found = list(divisions(study, device, total))
        if not found:
            table.add_row(str(total), "does not fit", "-", "-", "-", "-")
            continue
        cheapest = min(found, key=lambda one: (round(one.gpu_hours), one.wall_hours))
        fastest = min(
            found, key=lambda one: (round(one.wall_hours), round(one.gpu_hours), one.wall_hours)
        )
        for name, one in {"cheapest": cheapest, "fastest": fastest}.items():
            table.add_row(
                str(total), name, ", ".join(map(str, one.gpus)), str(one.at_once),
                f"{one.gpu_hours:,.0f}", f"{one.wall_hours / 24:.1f}",
            )  # fmt: skip
    return table, [_engine_line(study, size, shape, device) for size, shape in shapes.items()]


def _engine_line(study: Study, size: str, shape: Shape, device: Device, gpus: int = 8) -> str:
    """Return what the model prefers for one size on one machine."""
    engine = best_engine(study, shape, device, gpus)
    if engine is None or study.training.rollouts != "vllm-colocate":
        return f"{size} on {gpus} {device.name}: nothing to choose"
    step = costs.step_seconds(shape, study.training, study.engine_of(size), device, gpus)
    better = costs.step_seconds(shape, study.training, engine, device, gpus)
    budget = largest_budget(study, shape, engine, device, gpus)
    host = host_memory(shape, gpus, has_reference(study))[1]
    return (
        f"{size} on {gpus} {device.name}: {step:.0f} s per step with the study's engine; recommended: "
        f"vllm_tensor_parallel {engine.vllm_tensor_parallel}, vllm_gpu_memory {engine.vllm_gpu_memory}, "
        f"{better:.0f} s; micro_batch_tokens up to {budget or 'none of those tried'}; host memory "
        f"{host / 1e9:.0f} GB of a machine while it loads"
    )
