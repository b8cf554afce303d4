"""What a study costs before anything is spent: jobs, device-hours, tokens, disk, wall time, memory.

Estimates are those of `costs`; where a training of that size and method has left its metrics, its own
seconds per step replace them. Nothing is started, and no network is used.
"""

from dataclasses import dataclass
from itertools import groupby
from math import ceil
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo import paths
from stapo.files import read_jsonl
from stapo.models.shapes import Shape, shape_of, shapes_of
from stapo.operations import costs
from stapo.operations.costs import DEVICES, WEIGHT_BYTES, Device
from stapo.operations.current import is_built, is_trained, outputs, state
from stapo.operations.scale import recommendation
from stapo.operations.status import Answers, answers, outdated_lines
from stapo.records.step import ROLLOUT, UPDATE, from_line
from stapo.stages import jobs_of
from stapo.study import Study, StudyError, TrainingRun, identity
from stapo.study.schema import Verifier
from stapo.study.sources import HubModel, Model, TinyModel
from stapo.training.memory import ASSUMED, memory_warnings, verifier_warnings
from stapo.training.step_checkpoints import STATES_PER_PARAMETER

PAPER_MACHINE = ("h20", 64)
PAPER_DAYS = (5, 7)
"""Per run. Source: STAPO; of which size, and how the more than 3000 steps are counted, it does not say."""
START_HOURS = costs.JOB_SECONDS / 3600
MARK = "*"
MEASURED = (
    "* measured: seconds per step of the study's own metrics, whatever machine made them; what is done is "
    "judged by the fingerprints in files, as `stapo status` does"
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
    """Bytes at rest."""
    extra: float = 0.0
    """Bytes besides, of one job while it runs."""
    basis: str = "estimated"


def machine(gpu: str, gpus: int = 1, total: int | None = None) -> Machine:
    """Return a machine by the name of its device; `total` is `gpus` unless given.

    Raises:
        StudyError: unknown device, or too few of them.
    """
    total = gpus if total is None else total
    if gpu not in DEVICES:
        raise StudyError([f"--gpu: unknown device {gpu!r}; known: {', '.join(DEVICES)}"])
    if gpus < 1:
        raise StudyError([f"--gpus: expected at least 1, found {gpus}"])
    if not gpus <= total or (gpu == "cpu" and total > 1):
        raise StudyError(
            [f"--gpus, --total-gpus: {gpus} of {total} {gpu} is invalid; cpu supports one device"]
        )
    return Machine(DEVICES[gpu], gpus, total)


def plan(study: Study, machine: Machine, root: Path = Path()) -> list[CostRow]:
    """Return what is left to do, row by row in the order of the stages.

    Args:
        study: to be run.
        machine: on what.
        root: where `results/` and `work/` lie.

    Raises:
        StudyError: models of unknown shape.
    """
    shapes, verifier, start = shapes_of(study), study.evaluation.verifier, START_HOURS
    there = (root / paths.PROMPTS.format(study=study.name)).exists()
    rows = [CostRow("prompts", "for training", 1, there, start * (not there), start)]
    for size, shape in shapes.items():
        done = is_built(study, root, size)
        rows.append(_base_row(size, study.models[size], shape, machine.device, done))
    if verifier:
        done = is_built(study, root, "verifier")
        rows.append(_base_row("verifier", verifier, shape_of(verifier), machine.device, done))
    for size, shape in shapes.items():
        rows += [_train_row(study, size, shape, name, machine, root) for name in study.run.methods]
    rows += [
        _intervene_row(study, size, shape, machine.device, root)
        for size, shape in shapes.items()
        if any(one.size == size for one in study.intervened())
    ]
    cells = answers(study, root)
    stages = [
        _answer_rows(study, size, shape, machine.device, part)
        for part in _parts(study, cells)
        for size, shape in shapes.items()
    ]
    rows += [row for stage in zip(*stages, strict=True) for row in stage]
    done = set(outputs(study, root).values()) == {"there"}
    return [*rows, CostRow("tables", "and figures", 1, done, start * (not done), start)]


def disk_needed(study: Study) -> int | None:
    """Return the bytes that a study writes in all, at rest; the kind of machine does not matter.

    None if a model has an unknown shape, so that nothing can be estimated.
    """
    try:
        return int(sum(row.disk for row in plan(study, Machine(DEVICES["h200"]))))
    except StudyError:
        return None


def _base_row(
    size: str, model: Model | Verifier, shape: Shape, device: Device, done: bool
) -> CostRow:
    hours, devices = START_HOURS, 0
    if isinstance(model, TinyModel):
        hours, devices = hours + costs.supervise_seconds(shape, model, device) / 3600, 1
    left = 0.0 if done else hours
    # In fp32; from the Hub in bf16, once in its cache and once in results.
    weights = WEIGHT_BYTES * shape.parameters
    return CostRow("base model", size, 1, done, left, left, devices, disk=weights)


def progress(study: Study, size: str, method: str, root: Path) -> tuple[float | None, list[int]]:
    """Return the measured seconds per step of a size and method, and the steps done for each seed.

    Only steps with the settings of the study count as done; the speed is that of any earlier settings.
    """
    seconds, num_steps, done = 0.0, 0, []
    training = study.training_of(method)
    rollout = training.prompts_per_batch // training.prompts_per_mini_batch
    for seed in study.run.seeds:
        run = TrainingRun(size, method, seed)
        place = {"study": study.name, **run.wildcards}
        own = identity.train_fingerprint(study, run)
        work = root / paths.TRAIN_WORK.format(fingerprint=own) / "metrics.jsonl"
        working = read_jsonl(work)
        lines = working or read_jsonl(root / paths.METRICS.format(**place))
        records = [from_line(line) for line in lines]
        published = is_trained(study, root, run)
        last = records[-1].step if working else 0
        done.append(study.training.steps if published else last)
        # Whole rollouts, since generation stands in the first record of each; without the first of
        # several, which also warms up.
        whole = len(records) // rollout * rollout
        timed = [record.seconds for record in records[rollout * (whole > rollout) : whole]]
        seconds += sum(phase.get(ROLLOUT, 0.0) + phase[UPDATE] for phase in timed)
        num_steps += len(timed)
    return (seconds / num_steps if num_steps else None), done


def _train_row(
    study: Study, size: str, shape: Shape, method: str, machine: Machine, root: Path
) -> CostRow:
    training = study.training_of(method)
    modelled = costs.training_step_seconds(study, size, method, shape, machine.device, machine.gpus)
    measured, done = progress(study, size, method, root)
    start = costs.training_start_seconds(training)
    left = [training.steps - steps for steps in done]
    step = (measured or modelled) + costs.saving_seconds(shape) / training.checkpoint_every
    hours = [(start + steps * step) / 3600 for steps in left if steps > 0]
    responses = sum(left) * training.prompts_per_mini_batch * training.group_size
    state = WEIGHT_BYTES * shape.parameters * STATES_PER_PARAMETER
    weights = WEIGHT_BYTES * shape.parameters * (1 + len(study.kept_steps()))
    return CostRow(
        "train",
        f"{size} {method}",
        jobs=len(done),
        done=len(done) - len(hours),
        hours=sum(hours),
        longest=max(hours, default=0.0),
        devices=machine.gpus,
        tokens=responses * costs.mean_length(training.max_response_tokens),
        # One step checkpoint stays; while a training runs there are those kept and one being written.
        disk=len(done) * (weights + state),
        extra=training.keep_checkpoints * state,
        basis="measured" if measured else "estimated",
    )


def _intervene_row(study: Study, size: str, shape: Shape, device: Device, root: Path) -> CostRow:
    asked = jobs_of(study).all("intervene")
    states = [state(job, root) for job in asked if job.name.startswith(f"{size}/")]
    one = costs.intervene_seconds(study, size, shape, device)
    jobs, done = len(states), states.count("there")
    hours = (jobs - done) * one / 3600
    longest = one / 3600 if done < jobs else 0.0
    devices = study.gpus_of("intervene") if device.is_gpu else 1
    return CostRow("intervene", size, jobs, done, hours, longest, devices)


def _parts(study: Study, found: list[Answers]) -> list[list[Answers]]:
    """Return what answers everything, and what is for the curve alone where there is any."""
    full = [one for one in found if study.is_full(one.checkpoint)]
    curve = [one for one in found if not study.is_full(one.checkpoint)]
    return [part for part in (full, curve) if part]


def _answer_rows(
    study: Study, size: str, shape: Shape, device: Device, found: list[Answers]
) -> list[CostRow]:
    """Return the rows of generation, scores and verifier, as many for every size.

    `found` is of all sizes, and all of it answers the same benchmarks.
    """
    evaluation, engine = study.evaluation, study.engine
    what = size if study.is_full(found[0].checkpoint) else f"{size} curve"
    own = [one for one in found if one.checkpoint.size == size]
    cells, scored, each = len(own), sum(one.scored for one in own), own[0].wanted
    answered = sum(one.responses == one.wanted for one in own)
    benchmarks = own[0].benchmarks
    left, jobs, unscored = cells - answered, cells * benchmarks, cells * benchmarks - scored
    length = costs.mean_length(evaluation.max_response_tokens)
    prompt = costs.PROMPT_LENGTH * study.training.max_prompt_tokens
    one = costs.answer_seconds(shape, evaluation, engine, device, each, prompt) / 3600
    vllm = evaluation.backend == "vllm"
    gpus = engine.data_parallel * (engine.vllm_tensor_parallel if vllm else 1)
    tokens = each * length
    text = 2 * cells * tokens * costs.TEXT_BYTES  # In work and in results.
    share, files = each / benchmarks, cells * each * costs.SCORE_BYTES
    score = START_HOURS + share / costs.GRADED_PER_SECOND / 3600
    rows = [
        CostRow("generate", what, cells, answered, left * one, one, gpus, left * tokens, text),
        CostRow("score", what, jobs, scored, unscored * score, score, disk=files),
    ]
    if evaluation.verifier:
        judge, settings = shape_of(evaluation.verifier), evaluation.verifier
        seconds = costs.judge_seconds(judge, settings, device, share, prompt + length)
        start = costs.START_SECONDS["vllm" if vllm else "transformers"]
        hours = START_HOURS + (start + seconds) / 3600
        rows.append(CostRow("verifier", what, jobs, scored, unscored * hours, hours, 1))
    return rows


def _at_once(rows: list[CostRow], machine: Machine) -> int:
    """Return how many jobs of one stage run at the same time; those without a device one by one."""
    left, devices = sum(row.jobs - row.done for row in rows), max(row.devices for row in rows)
    return max(min(machine.total // devices, left), 1) if devices else 1


def wall_hours(rows: list[CostRow], machine: Machine) -> float:
    """Return the wall time of the rows of one stage on a machine that does nothing else."""
    left, hours = sum(row.jobs - row.done for row in rows), sum(row.hours for row in rows)
    longest = max(row.longest for row in rows if row.jobs > row.done) if left else 0.0
    return max(ceil(left / _at_once(rows, machine)) * hours / left, longest) if left else 0.0


def print_plan(study: Study, machine: Machine, console: Console, root: Path = Path()) -> None:
    """Print what a study still costs, and what may not fit into the memory."""
    rows, device = plan(study, machine, root), machine.device
    title = f"{study.name} on {machine.total} x {device.name}, {machine.gpus} for each training"
    shown = Table(title=Text(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("stage", no_wrap=True)
    for heading in ("left", f"{device.name} h", "tokens", "disk", "peak", "wall"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        spent, running = row.hours * row.devices, row.extra * _at_once([row], machine)
        shown.add_row(
            f"{row.stage} {row.what}",
            f"{row.jobs - row.done}/{row.jobs}",
            f"{spent:,.0f}" if spent >= 100 else f"{spent:.2f}" if row.devices else "-",
            f"{row.tokens:.1e}" if row.tokens else "-",
            _size(row.disk),
            _size(row.disk + running),
            _span(wall_hours([row], machine)) + (MARK if row.basis == "measured" else ""),
        )
    console.print(shown)
    for line in outdated_lines(study, root):
        console.print(Text(line), style="yellow", soft_wrap=True)
    assumed = (f"assumption: {line}" for line in costs.ASSUMPTIONS)
    for line in (_total(rows, machine), *_curve(study), *_paper(study), *assumed, MEASURED):
        console.print(Text(line), soft_wrap=True)
    _print_scale(study, device, console)
    for line in too_large(study, machine):
        console.print(Text(f"warning: {line}"), style="yellow", soft_wrap=True)


def too_large(study: Study, machine: Machine) -> list[str]:
    """Return a line for each model that may not fit into the memory of a machine's GPUs, and why."""
    memory = machine.device.memory
    if not machine.device.is_gpu:
        return []
    found = memory_warnings(study, machine.gpus, memory) + verifier_warnings(study, memory)
    return [*found, ASSUMED] if found else []


def _print_scale(study: Study, device: Device, console: Console) -> None:
    """Print how to divide GPUs among trainings, for a study of models that are not tiny."""
    if device.is_gpu and any(not isinstance(study.models[s], TinyModel) for s in study.run.sizes):
        table, lines = recommendation(study, device)
        console.print(table)
        for line in lines:
            console.print(Text(line), soft_wrap=True)


def _total(rows: list[CostRow], machine: Machine) -> str:
    stages = [list(stage) for _, stage in groupby(rows, key=lambda row: row.stage)]
    wall = sum(wall_hours(stage, machine) for stage in stages)
    extra = max(max(row.extra for row in stage) * _at_once(stage, machine) for stage in stages)
    disk, spent = sum(row.disk for row in rows), sum(row.hours * row.devices for row in rows)
    tokens = sum(row.tokens for row in rows)
    return (
        f"left in all: {spent:.1f} {machine.device.name}-hours, {tokens:.1e} tokens, wall time {_span(wall)} "
        f"one stage after another; disk {_size(disk)} at rest, {_size(disk + extra)} at peak"
    )


def _curve(study: Study) -> list[str]:
    """Return what weights the curve keeps besides; none are removed once they are answered."""
    steps = len(study.kept_steps()) - len(study.full_steps())
    trainings = len(study.run.methods) * len(study.run.seeds)
    weights = sum(WEIGHT_BYTES * shape.parameters for shape in shapes_of(study).values())
    return [
        f"the curve: weights after {steps} more steps of each training, in all "
        f"{_size(steps * trainings * weights)} of the trainings' disk"
    ] * bool(steps)


def _paper(study: Study) -> list[str]:
    """Return the paper's own cost beside the model's for its machine, where a study has Hub models."""
    (name, gpus), training = PAPER_MACHINE, study.training
    days = []
    for size, shape in shapes_of(study).items():
        if isinstance(study.models[size], HubModel):
            step = costs.step_seconds(shape, training, study.engine_of(size), DEVICES[name], gpus)
            days.append(f"{size} {training.steps * step / 86400:.1f}")
    return [
        f"the paper: {gpus} {name}, {PAPER_DAYS[0]} to {PAPER_DAYS[1]} days per run, of which size it does "
        "not say, nor whether its more than 3000 steps are rollouts or updates; this model there, for the "
        f"{training.steps} updates of this study, in days: {', '.join(days)}"
    ] * bool(days)


def _size(num_bytes: float) -> str:
    unit, name = (
        (1e12, "TB") if num_bytes >= 1e12 else (1e9, "GB") if num_bytes >= 1e8 else (1e6, "MB")
    )
    shown = num_bytes / unit
    return f"{shown:.{0 if shown >= 100 else 1}f} {name}" if num_bytes else "-"


def _span(hours: float) -> str:
    for unit, name in ((24, "d"), (1, "h"), (1 / 60, "min")):
        if hours >= (48 if name == "d" else unit):
            return f"{hours / unit:.1f} {name}"
    return f"{hours * 3600:.0f} s" if hours else "-"
