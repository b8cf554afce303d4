"""What a study costs before anything is spent: jobs, device time, tokens, disk, wall time.

A first-order model, which reads no files, informs, and refuses nothing. Units are seconds, bytes and
floating-point operations (FLOPs). Every assumption is a constant below with its source.
tests/unit/operations/test_plan.py compares the time with two published trainings: it agrees with JustRL's; of
the paper's it is unknown what a step is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import ceil, inf, log2
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.methods import Method
from stapo.models.shapes import Shape, shape_of
from stapo.operations.status import span, table_of
from stapo.records.arms import MOMENT_ROLLOUTS
from stapo.stages import Job, jobs_of
from stapo.study import Checkpoint, Study, StudyError
from stapo.study.schema import TrainingSettings
from stapo.study.sources import TinyModel
from stapo.training.launch import training_errors

POSITIVE = 0.5
"""Share of the responses with positive advantage, our assumption."""
MEAN_LENGTH = 0.35
"""Mean response length over its limit; our assumption (at 15,360 tokens: 5,400)."""
LENGTH_SPREAD = 1.5
"""Mean squared length over squared mean length, our assumption: most tokens are in long responses."""
PROMPT_LENGTH = 0.2
"""Mean prompt length over its limit, our assumption (at 1,024 tokens: 200)."""
COMPUTE_UTILISATION = 0.31
"""Share of the peak FLOP/s reached in updates and prefill; measured on one H200, assumed of other GPUs and of
several."""
BANDWIDTH_UTILISATION = 0.6
"""Share of the memory bandwidth reached in decoding, our assumption."""
TENSOR_PARALLEL_EFFICIENCY = 0.85
"""Share of the joint FLOP/s and bandwidth that each doubling of tensor parallelism keeps, our assumption."""
STEP_SECONDS_PER_LAYER = {"vllm": 0.0003, "transformers": 0.001}
"""Minimum time of a decoding step per layer (scheduling, launches, sampling), our assumption: vLLM 8 ms,
Transformers 28 ms for 28 layers. It holds even if only the longest response of a rollout is left."""
DRAIN = 0.7
"""Steps, over the length limit, from the last response that starts to the end of a batch that did not fit at
once; fitted to a simulated continuous batching: within 5 % of it at five sizes and machines."""
SAVED_BYTES_PER_SECOND = 5e8
"""Of a step checkpoint, with its checksums; 5.2e8 was measured beside one H200."""
WEIGHT_BYTES = 4.0
"""Of a parameter, in float32."""
STATES_PER_PARAMETER = 3
"""Numbers in a step checkpoint: the weight and the two moments of Adam."""
TEXT_BYTES = 4.0
"""Bytes of one token as UTF-8, our assumption (JSON lines are not compressed)."""


STATE_BYTES = 4 * WEIGHT_BYTES
"""Of a parameter in a training: weight, gradient and both of Adam's moments, sharded over its GPUs."""
STAGES = ("base", "train", "intervene", "generate", "score")
"""Stages with costs of their own."""
ESTIMATED = (
    "estimated from the assumptions in stapo/operations/plan.py, none of them measured on GPUs"
)


@dataclass(frozen=True)
class Device:
    """A compute device: one GPU, or two CPU cores."""

    name: str
    flops: float
    """Peak dense FLOP/s, bf16 on GPUs, fp32 on a CPU."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    memory: float
    """Nominal memory in bytes."""

    @property
    def is_gpu(self) -> bool:
        """Whether it computes in bf16, with gradient checkpointing."""
        return self.name != "cpu"


DATA_SHEETS = (
    # NVIDIA's data sheets, SXM modules, without sparsity; H20: secondary copies that agree.
    Device("h200", 989e12, 4.8e12, 141e9),
    Device("h100", 989e12, 3.35e12, 80e9),
    Device("h800", 989e12, 3.35e12, 80e9),
    Device("h20", 148e12, 4.0e12, 96e9),
    Device("a100", 312e12, 2.04e12, 80e9),
    Device("a800", 312e12, 2.04e12, 80e9),
    # Two cores with AVX2, our assumption; the smoke study's updates reach 35 % of it.
    Device("cpu", 1e11, 2e10, 8e9),
)
DEVICES = {device.name: device for device in DATA_SHEETS}
Vllm = tuple[int, float]
"""Number of GPUs of an engine of vLLM, and the share of their memory that it takes."""


def decode_seconds(
    shape: Shape, device: Device, vllm: Vllm | None, responses: float, prompt: float, limit: int
) -> float:
    """Return the seconds to generate a batch of responses with one engine.

    The time is the larger of bandwidth-bound and compute-bound decoding, plus the minimum time of every
    step. vLLM removes finished responses from the batch; Transformers keeps them until the longest is done.

    Args:
        shape: shape of the model.
        device: one device.
        vllm: GPUs of vLLM, and the share of their memory that it takes; None: Transformers on one device.
        responses: number of responses.
        prompt: tokens of each prompt.
        limit: tokens of the longest response.
    """
    gpus, share = vllm or (1, inf)
    # The memory of GPUs adds up, their speed not quite. Responses that do not fit wait.
    speed: float = gpus * TENSOR_PARALLEL_EFFICIENCY ** log2(gpus)
    bytes_each = 2 if device.is_gpu else 4
    cache = share * gpus * device.memory - bytes_each * shape.parameters
    length = MEAN_LENGTH * limit if vllm else float(limit)
    per_token = bytes_each * shape.cache_values
    slots = min(responses, max(cache / (per_token * (prompt + length)), 1.0))
    # Until no response waits, all places are taken. Those in progress then have half of their mean
    # length left, weighted by length, since a long response holds its place for longer.
    full = responses * length / slots - LENGTH_SPREAD * length / 2
    steps = max(limit, full + DRAIN * limit)
    context = _context(prompt, limit)
    read = steps * bytes_each * shape.parameters
    read += responses * length * context * per_token
    flops = shape.forward(responses * length, context) + shape.forward(
        responses * prompt, prompt / 2
    )
    least = STEP_SECONDS_PER_LAYER["vllm" if vllm else "transformers"]
    return steps * shape.layers * least + max(
        read / (speed * device.bandwidth * BANDWIDTH_UTILISATION),
        flops / (speed * device.flops * COMPUTE_UTILISATION),
    )


def step_seconds(study: Study, size: str, method: str, device: Device, gpus: int) -> float:
    """Return the mean seconds of one optimiser step: its share of the rollout, and its update.

    All GPUs first generate, then update.
    """
    shape, training = shape_of(study.models[size]), study.training_of(method)
    engine, vllm = study.engine_of(size), None
    if training.rollouts != "transformers":
        vllm = engine.vllm_tensor_parallel, engine.vllm_gpu_memory
    responses = training.prompts_per_batch * training.group_size
    prompt, limit = PROMPT_LENGTH * training.max_prompt_tokens, training.max_response_tokens
    on_each = responses / max(gpus // (vllm[0] if vllm else 1), 1)
    generation = decode_seconds(shape, device, vllm, on_each, prompt, limit)
    tokens = responses * (prompt + MEAN_LENGTH * limit)
    # Old log-probs, and the update, whose backward pass counts as two forwards.
    passes = 1 + further_passes(study.method(method), training) + (4 if device.is_gpu else 3)
    flops = passes * shape.forward(tokens, _context(prompt, limit))
    update = flops / (gpus * device.flops * COMPUTE_UTILISATION)
    return (generation + update) * training.prompts_per_mini_batch / training.prompts_per_batch


def further_passes(method: Method, training: TrainingSettings) -> float:
    """Return the mean number of forward passes per response, without the update and the old log-probs."""
    kl = float(method.kl_coefficient > 0)
    if method.reads == "none" or training.statistics == "behaviour":
        return kl
    later_updates = 1 - training.prompts_per_mini_batch / training.prompts_per_batch
    return kl + later_updates * (POSITIVE if method.reads == "positive" else 1.0)


def training_seconds(study: Study, size: str, method: str, device: Device, gpus: int) -> float:
    """Return the seconds of a training with its checkpoints."""
    training = study.training_of(method)
    state = WEIGHT_BYTES * shape_of(study.models[size]).parameters * STATES_PER_PARAMETER
    saving = state / SAVED_BYTES_PER_SECOND / training.checkpoint_every
    return training.steps * (step_seconds(study, size, method, device, gpus) + saving)


def intervene_seconds(study: Study, size: str, device: Device) -> float:
    """Return the seconds of the interventions at one checkpoint, in one process.

    An update, and the held-out responses of the size of a mini-batch, count as a step of a training each.
    """
    settings = study.interventions
    held_out = ceil(settings.prompts / study.training_of(settings.method).prompts_per_mini_batch)
    steps = MOMENT_ROLLOUTS + settings.repetitions * (1 + len(settings.arms)) * (1 + held_out)
    return steps * step_seconds(study, size, settings.method, device, 1)


def answer_seconds(study: Study, size: str, device: Device, responses: int) -> float:
    """Return the seconds in which one checkpoint answers under one decoding.

    Transformers waits for the longest response of every batch, vLLM for the longest of all.
    """
    shape, evaluation, engine = shape_of(study.models[size]), study.evaluation, study.engine
    batch, vllm = min(evaluation.batch_size, responses), None
    if evaluation.backend == "vllm":
        batch, vllm = responses, (engine.vllm_tensor_parallel, engine.vllm_evaluation_memory)
    limit, prompt = evaluation.max_response_tokens, PROMPT_LENGTH * study.training.max_prompt_tokens
    return ceil(responses / batch) * decode_seconds(shape, device, vllm, batch, prompt, limit)


def _context(prompt: float, limit: int) -> float:
    """Return how many tokens a response token attends to, on average over tokens."""
    return prompt + LENGTH_SPREAD * MEAN_LENGTH * limit / 2


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
        seconds = training_seconds(study, size, method, on.device, on.gpus)
        responses = training.steps * training.prompts_per_mini_batch * training.group_size
        tokens = responses * MEAN_LENGTH * training.max_response_tokens
        weights = WEIGHT_BYTES * shape_of(study.models[size]).parameters
        disk = weights * (1 + len(study.kept_steps()) + STATES_PER_PARAMETER)
    elif stage == "intervene":
        devices = max(study.gpus_of(stage), 1)
        seconds = intervene_seconds(study, size, on.device)
    elif stage == "generate":
        devices = max(study.gpus_of(stage), 1)
        responses = sum(study.problems(name) * one["samples"] for name, one in own[0].also.items())
        seconds = answer_seconds(study, size, on.device, responses)
        tokens = responses * MEAN_LENGTH * study.evaluation.max_response_tokens
        disk = 2 * tokens * TEXT_BYTES  # In work and in results.
    n = len(own)
    return CostRow(stage, what, n, n * seconds / 3600, devices, n * tokens, n * disk)


def wall_hours(rows: Iterable[CostRow], on: Machine) -> float:
    """Return the wall time of rows on a machine that does nothing else, one stage after another.

    As many jobs of a stage run at once as there are devices, and all take their mean time; those without a
    device take no time.
    """
    wall = 0.0
    for _, group in groupby(rows, lambda row: row.stage):
        own = list(group)
        jobs, hours = sum(row.jobs for row in own), sum(row.hours for row in own)
        if hours:
            at_once = max(min(on.total // max(row.devices for row in own), jobs), 1)
            wall += ceil(jobs / at_once) * hours / jobs
    return wall


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
        f"{span(3600 * wall_hours(rows, on))}, {span(3600 * _device_hours(rows))} of {name}, "
        f"{tokens:.1e} tokens, {disk / 1e9:.3g} GB of disk"
    )
    console.print(Text(title), soft_wrap=True)
    for line in document["warnings"]:
        console.print(Text(f"warning: {line}"), style="yellow", soft_wrap=True)
    table = table_of("", "stage", "jobs", f"{name} time", "tokens", "GB", "wall")
    for row in rows:
        wall = span(3600 * wall_hours([row], on))
        generated = f"{row.tokens:.1e}" if row.tokens else "-"
        spent = span(3600 * _device_hours([row]))
        table.add_row(
            f"{row.stage} {row.what}",
            str(row.jobs),
            spent,
            generated,
            f"{row.disk / 1e9:.3g}",
            wall,
        )
    console.print(table)
    console.print(Text(ESTIMATED), style="dim", soft_wrap=True)
