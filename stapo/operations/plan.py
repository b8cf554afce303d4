"""What a study still costs before anything is spent: jobs, device time, tokens, disk, wall time, memory.

Estimates are those of `costs`; where trainings of a size have left metrics, their seconds per step replace
them, also for the methods beside them. Nothing is started, and no network is used.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo import paths
from stapo.files import read_jsonl
from stapo.models.shapes import shape_of, shapes_of
from stapo.operations import costs
from stapo.operations.costs import DEVICES, WEIGHT_BYTES, Device
from stapo.operations.current import is_built, is_trained, state
from stapo.operations.memory import ASSUMED, MOST_GPUS, memory_warnings
from stapo.operations.status import Answers, answers, outdated_lines, seconds_per_step
from stapo.records.step import from_line
from stapo.stages import jobs_of
from stapo.study import Study, StudyError, TrainingRun
from stapo.study.sources import TinyModel
from stapo.training.launch import division_errors
from stapo.training.step_checkpoints import STATES_PER_PARAMETER

TOTALS = (8, 64, 512)
"""Numbers of GPUs for which the plan says how long everything takes."""
MARK = "*"
MEASURED = (
    "* by seconds per step of the study's own metrics, whatever machine made them; a method without metrics "
    "takes those of others of its size, times the ratio of their estimates"
)


@dataclass(frozen=True)
class Machine:
    """Devices of one kind: `gpus` for each training, `total` at hand."""

    device: Device
    gpus: int = 1
    total: int = 1


@dataclass(frozen=True)
class CostRow:
    """What the jobs of one kind still cost; bytes are those of all jobs, done or not."""

    stage: str
    what: str
    jobs: int
    done: int
    hours: float
    """Of all that is left, one job after another."""
    longest: float
    """Hours of the longest job that is left."""
    devices: int = 0
    """Of one job; 0 where a CPU core is enough."""
    tokens: float = 0.0
    """Still to be generated."""
    disk: float = 0.0
    """Bytes of the results, and of one step checkpoint of each training."""
    basis: str = "estimated"


@dataclass(frozen=True)
class Found:
    """What the files of a study say, read once for all machines."""

    built: dict[str, bool]
    steps: dict[tuple[str, str], list[int]]
    """Steps that are done, of each seed, by size and method."""
    seconds: dict[tuple[str, str], float]
    """Measured seconds per step."""
    answers: list[Answers]
    intervened: dict[str, list[bool]]
    """Whether the interventions at each checkpoint of a size are there."""


def machine(
    study: Study, gpu: str | None = None, gpus: int | None = None, total: int | None = None
) -> Machine:
    """Return a machine by the name of its device.

    Args:
        study: what is to run on it.
        gpu: name; None: h200, or cpu for tiny models that need no GPU.
        gpus: of one training; None: the fewest, a power of two, that fit by the estimate.
        total: of all trainings side by side; None: those of one training.

    Raises:
        StudyError: unknown device, too few of them, or a mini-batch that they cannot divide.
    """
    device = DEVICES.get(gpu or ("cpu" if _is_tiny(study) else "h200"))
    if device is None:
        raise StudyError([f"--gpu: unknown device {gpu!r}; known: {', '.join(DEVICES)}"])
    if gpus is None:
        gpus = next(_numbers(study, device), 1) if device.is_gpu else 1
    if gpus < 1:
        raise StudyError([f"--gpus: expected at least 1, found {gpus}"])
    total = gpus if total is None else total
    if not gpus <= total or (not device.is_gpu and total > 1):
        about = f"{gpus} of {total} {device.name} is invalid; cpu supports one device"
        raise StudyError([f"--gpus, --total-gpus: {about}"])
    if errors := division_errors(study, gpus):
        raise StudyError(errors)
    return Machine(device, gpus, total)


def _is_tiny(study: Study) -> bool:
    on_cpus = study.training.rollouts == "transformers" and study.evaluation.backend == "hf"
    return on_cpus and all(isinstance(study.models[size], TinyModel) for size in study.run.sizes)


def _numbers(study: Study, device: Device, most: int = MOST_GPUS) -> Iterator[int]:
    """Yield the powers of two on which every training of a study can run, by the estimate of memory."""
    engines = (study.engine_of(size).vllm_tensor_parallel for size in study.run.sizes)
    least = max(engines) if study.training.rollouts == "vllm-colocate" else 1
    for gpus in (2**power for power in range(most.bit_length())):
        fits = not device.is_gpu or not memory_warnings(study, gpus, device.memory)
        if least <= gpus <= most and fits and not division_errors(study, gpus):
            yield gpus


def found_of(study: Study, root: Path = Path()) -> Found:
    """Return what the files below a working directory say of a study."""
    names = [*study.run.sizes, *(["verifier"] if study.evaluation.verifier else [])]
    steps, seconds = {}, {}
    for size in study.run.sizes:
        for method in study.run.methods:
            key = size, method
            measured, steps[key] = _progress(study, size, method, root)
            if measured is not None:
                seconds[key] = measured
    there: dict[str, list[bool]] = {}
    for job in jobs_of(study).all("intervene"):
        there.setdefault(job.name.partition("/")[0], []).append(state(job, root) == "there")
    built = {name: is_built(study, root, name) for name in names}
    return Found(built, steps, seconds, answers(study, root), there)


def _progress(study: Study, size: str, method: str, root: Path) -> tuple[float | None, list[int]]:
    """Return the measured seconds per step of a size and method, and the steps done for each seed.

    Only steps with the settings of the study count as done; the speed is that of any earlier settings.
    """
    training, records, done = study.training_of(method), [], []
    for seed in study.run.seeds:
        run = TrainingRun(size, method, seed)
        work = paths.TRAIN_WORK.format(fingerprint=jobs_of(study).one("train", run).fingerprint)
        working = read_jsonl(root / work / paths.METRICS_FILE)
        published = paths.METRICS.format(study=study.name, **run.wildcards)
        own = [from_line(line) for line in working or read_jsonl(root / published)]
        done.append(training.steps if is_trained(study, root, run) else len(working))
        records += own
    rollout = training.prompts_per_batch // training.prompts_per_mini_batch
    return seconds_per_step(records, rollout), done


def plan(study: Study, machine: Machine, found: Found) -> list[CostRow]:
    """Return what is left to do, row by row in the order of the stages.

    Raises:
        StudyError: models of unknown shape.
    """
    shapes_of(study)
    start = costs.JOB_SECONDS / 3600
    rows = []
    for name, done in found.built.items():
        judge = study.evaluation.verifier
        model = judge if judge and name == "verifier" else study.model(name)
        left = 0.0 if done else start
        weights = WEIGHT_BYTES * shape_of(model).parameters
        rows.append(CostRow("base model", name, 1, done, left, left, disk=weights))
    rows += [_train_row(study, *key, machine, found) for key in found.steps]
    for size, there in found.intervened.items():
        one = costs.intervene_seconds(study, size, machine.device) / 3600
        left, devices = there.count(False), max(study.gpus_of("intervene"), 1)
        rows.append(
            CostRow(
                "intervene", size, len(there), sum(there), left * one, one * (left > 0), devices
            )
        )
    parts: dict[str, list[Answers]] = {}
    for cell in found.answers:
        curve = "" if study.is_full(cell.checkpoint) else " curve"
        parts.setdefault(f"{cell.checkpoint.size}{curve}", []).append(cell)
    rows += [_generate_row(study, what, own, machine.device) for what, own in parts.items()]
    rows += [_score_row(study, what, own, machine.device) for what, own in parts.items()]
    return rows


def _train_row(study: Study, size: str, method: str, machine: Machine, found: Found) -> CostRow:
    training, steps = study.training_of(method), found.steps[size, method]

    def estimated(name: str) -> float:
        return costs.study_step_seconds(study, size, name, machine.device, machine.gpus)

    step, others = estimated(method), [name for of, name in found.seconds if of == size]
    if method in others:
        step = found.seconds[size, method]
    elif others:
        step *= sum(found.seconds[size, one] / estimated(one) for one in others) / len(others)
    left = [training.steps - one for one in steps if one < training.steps]
    hours = [costs.training_seconds(study, size, method, one, step) / 3600 for one in left]
    state = WEIGHT_BYTES * shape_of(study.model(size)).parameters * STATES_PER_PARAMETER
    weights = state / STATES_PER_PARAMETER * (1 + len(study.kept_steps()))
    per_step = training.prompts_per_mini_batch * training.group_size
    length = costs.MEAN_LENGTH * training.max_response_tokens
    return CostRow(
        "train",
        f"{size} {method}",
        jobs=len(steps),
        done=len(steps) - len(left),
        hours=sum(hours),
        longest=max(hours, default=0.0),
        devices=machine.gpus,
        tokens=sum(left) * per_step * length,
        disk=len(steps) * (weights + state),
        basis="measured" if others else "estimated",
    )


def _generate_row(study: Study, what: str, own: list[Answers], device: Device) -> CostRow:
    each, size = own[0].wanted, own[0].checkpoint.size
    one = costs.answer_seconds(study, size, device, each) / 3600
    answered = sum(one.responses == one.wanted for one in own)
    left, tokens = (
        len(own) - answered,
        each * costs.MEAN_LENGTH * study.evaluation.max_response_tokens,
    )
    return CostRow(
        "generate",
        what,
        jobs=len(own),
        done=answered,
        hours=left * one,
        longest=one * (left > 0),
        devices=max(study.gpus_of("generate"), 1),
        tokens=left * tokens,
        disk=2 * len(own) * tokens * costs.TEXT_BYTES,  # In work and in results.
    )


def _score_row(study: Study, what: str, own: list[Answers], device: Device) -> CostRow:
    jobs, scored = sum(one.benchmarks for one in own), sum(one.scored for one in own)
    one = costs.score_seconds(study, device, own[0].wanted // own[0].benchmarks) / 3600
    left, devices = jobs - scored, study.gpus_of("score")
    return CostRow("score", what, jobs, scored, left * one, one * (left > 0), devices)


def wall_hours(rows: list[CostRow], machine: Machine) -> float:
    """Return the wall time of the rows of one stage on a machine that does nothing else.

    As many jobs run at once as there are devices; those without a device run one by one.
    """
    left, hours = sum(row.jobs - row.done for row in rows), sum(row.hours for row in rows)
    if not left:
        return 0.0
    devices = max(row.devices for row in rows)
    at_once = max(min(machine.total // devices, left), 1) if devices else 1
    return max(ceil(left / at_once) * hours / left, *(row.longest for row in rows))


def total_hours(rows: Iterable[CostRow], machine: Machine) -> float:
    """Return the wall time of all rows, one stage after another."""
    return sum(wall_hours(list(own), machine) for _, own in groupby(rows, lambda row: row.stage))


def disk_needed(study: Study) -> int | None:
    """Return the bytes that a study writes in all, at rest, without looking at what is there.

    None if a model has an unknown shape, so that nothing can be estimated.
    """
    try:
        rows = plan(study, Machine(DEVICES["h200"]), found_of(study, Path("/nowhere")))
    except StudyError:
        return None
    return int(sum(row.disk for row in rows))


def too_large(study: Study, machine: Machine) -> list[str]:
    """Return a line for each model that may not fit into the memory of a machine's GPUs, and why."""
    if not machine.device.is_gpu:
        return []
    found = memory_warnings(study, machine.gpus, machine.device.memory)
    return [*found, ASSUMED] if found else []


def plan_document(study: Study, machine: Machine, root: Path = Path()) -> dict[str, Any]:
    """Return the document of `stapo plan --json`."""
    return {
        "study": study.name,
        "gpu": machine.device.name,
        "gpus": machine.gpus,
        "total_gpus": machine.total,
        "rows": [vars(row) for row in plan(study, machine, found_of(study, root))],
        "outdated": outdated_lines(study, root),
        "assumptions": list(costs.ASSUMPTIONS),
        "too_large": too_large(study, machine),
    }


def print_plan(study: Study, machine: Machine, console: Console, root: Path = Path()) -> None:
    """Print what a study still costs in all, then by stage, and what the numbers rest on."""
    found, name = found_of(study, root), machine.device.name
    rows = plan(study, machine, found)
    disk, tokens = sum(row.disk for row in rows), sum(row.tokens for row in rows)
    spent = sum(row.hours * max(row.devices, 1) for row in rows)
    wall = span(total_hours(rows, machine))
    title = (
        f"{study.name} on {machine.total} x {name}, {machine.gpus} for each training: {wall} left, "
        f"{span(spent)} of {name}, {tokens:.1e} tokens, {_size(disk)} of disk"
    )
    console.print(Text(title), soft_wrap=True)
    warnings = [*too_large(study, machine), *outdated_lines(study, root)]
    for line in warnings:
        console.print(Text(f"warning: {line}"), style="yellow", soft_wrap=True)
    if machine.device.is_gpu and not _is_tiny(study):
        console.print(_scale_table(study, machine.device, found))
    console.print(_stage_table(rows, machine))
    lines = [f"assumption: {line}" for line in costs.ASSUMPTIONS]
    measured = [MEASURED] * any(row.basis == "measured" for row in rows)
    for line in (*measured, *lines):
        console.print(Text(line), style="dim", soft_wrap=True)


def _scale_table(study: Study, device: Device, found: Found) -> Table:
    """Return how long everything takes on some numbers of GPUs, each divided so that it ends first."""
    shown = _table("GPUs", "of each training", f"{device.name} time", "wall")
    # Measured seconds belong to one number of GPUs.
    estimated = Found(found.built, found.steps, {}, found.answers, found.intervened)
    for total in TOTALS:
        ways = [Machine(device, gpus, total) for gpus in _numbers(study, device, total)]
        if not ways:
            shown.add_row(str(total), "does not fit", "-", "-")
            continue
        rows = {way: plan(study, way, estimated) for way in ways}
        best = min(ways, key=lambda way: total_hours(rows[way], way))
        spent = sum(row.hours * max(row.devices, 1) for row in rows[best])
        wall = span(total_hours(rows[best], best))
        shown.add_row(str(total), str(best.gpus), span(spent), wall)
    return shown


def _stage_table(rows: list[CostRow], machine: Machine) -> Table:
    shown = _table("stage", "left", f"{machine.device.name} time", "tokens", "disk", "wall")
    for row in rows:
        shown.add_row(
            f"{row.stage} {row.what}",
            f"{row.jobs - row.done}/{row.jobs}",
            span(row.hours * row.devices) if row.devices else "-",
            f"{row.tokens:.1e}" if row.tokens else "-",
            _size(row.disk),
            span(wall_hours([row], machine)) + (MARK if row.basis == "measured" else ""),
        )
    return shown


def _table(*headings: str) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return shown


def _size(num_bytes: float) -> str:
    unit, name = (
        (1e12, "TB") if num_bytes >= 1e12 else (1e9, "GB") if num_bytes >= 1e8 else (1e6, "MB")
    )
    shown = num_bytes / unit
    return f"{shown:.{0 if shown >= 100 else 1}f} {name}" if num_bytes else "-"


def span(hours: float) -> str:
    """Return a duration in the unit that suits it, such as `1.5 min` or `12.0 d`."""
    for unit, name in ((24, "d"), (1, "h"), (1 / 60, "min")):
        if hours >= (48 if name == "d" else unit):
            return f"{hours / unit:,.1f} {name}"
    return f"{hours * 3600:.0f} s" if hours else "-"
