"""What a study costs before anything is spent: jobs, hours, GPU-hours, disk and memory.

A first-order model, which reads no files, informs, and refuses nothing. Units are seconds, bytes and
floating-point operations (FLOPs). Every assumption is a constant below with its source.
Its tests compare the time with two published trainings: it agrees with JustRL's; of the paper's it is unknown
what a step is.
"""

from collections import Counter
from math import ceil, inf, log2
from shutil import disk_usage
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from stapo.core.files import checkpoint_interval
from stapo.suite.job import Job
from stapo.suite.jobs import jobs_of
from stapo.suite.models.shapes import Shape, shape_of
from stapo.suite.operations.gpu_memory import does_not_fit, gpu_bytes
from stapo.suite.operations.memory import SETTING, needed_bytes, too_large
from stapo.suite.operations.status import lines_of, progress, span, table_of
from stapo.suite.records.arms import MOMENT_ROLLOUTS
from stapo.suite.study import Study, StudyError
from stapo.suite.study.sources import TinyModel

MEAN_LENGTH = 0.35
"""Mean response length over its limit; our assumption (at 15,360 tokens: 5,400)."""
LENGTH_SPREAD = 1.5
"""Mean squared length over squared mean length, our assumption: most tokens are in long responses."""
ATTENDED = LENGTH_SPREAD * MEAN_LENGTH / 2
"""Response tokens that a response token attends to, over the limit, on average over tokens."""
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
ESTIMATED = "estimated from the assumptions in stapo/suite/operations/plan.py"


class Device(NamedTuple):
    """A compute device: one GPU, or two CPU cores."""

    flops: float
    """Peak dense FLOP/s, bf16 on GPUs, fp32 on a CPU."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    memory: float
    """Nominal memory in bytes."""
    is_gpu: bool = True
    """Whether it computes in bf16, with gradient checkpointing."""


DEVICES = {
    # NVIDIA's data sheets, SXM modules, without sparsity; H20: secondary copies that agree.
    "h200": Device(989e12, 4.8e12, 141e9),
    "h100": Device(989e12, 3.35e12, 80e9),
    "h800": Device(989e12, 3.35e12, 80e9),
    "h20": Device(148e12, 4.0e12, 96e9),
    "a100": Device(312e12, 2.04e12, 80e9),
    "a800": Device(312e12, 2.04e12, 80e9),
    # NVIDIA's white papers: dense bf16 with float32 sums.
    "rtx-3090": Device(71e12, 0.936e12, 24e9),
    "rtx-4090": Device(165e12, 1.008e12, 24e9),
    "rtx-5090": Device(210e12, 1.792e12, 32e9),
    "l40s": Device(362e12, 0.864e12, 48e9),
    # Two cores with AVX2, our assumption; the smoke study's updates reach 35 % of it.
    "cpu": Device(1e11, 2e10, 8e9, is_gpu=False),
}
Vllm = tuple[int, float]
"""Number of GPUs of an engine of vLLM, and the share of their memory that it takes."""


def decode_seconds(
    shape: Shape,
    device: Device,
    vllm: Vllm | None,
    responses: float,
    prompt: float,
    limit: int,
    group: int = 1,
) -> float:
    """Return the seconds to generate a batch of responses with one engine.

    The time is the larger of bandwidth-bound and compute-bound decoding, plus the minimum time of every
    step. vLLM removes finished responses from the batch; Transformers, on one device, keeps them until the
    longest is done. Each prompt has `prompt` tokens, the longest response `limit`; with Transformers the
    `group` responses to a prompt share the pass over it.
    """
    gpus, share = vllm or (1, inf)
    # The memory of GPUs adds up, their speed not quite. Responses that do not fit wait.
    speed: float = gpus * TENSOR_PARALLEL_EFFICIENCY ** log2(gpus)
    bytes_each = 2 if device.is_gpu else 4
    cache = share * gpus * device.memory - bytes_each * shape.parameters
    length = MEAN_LENGTH * limit if vllm else float(limit)
    per_token = bytes_each * 2 * shape.layers * shape.kv_heads * shape.head_dim
    slots = min(responses, max(cache / (per_token * (prompt + length)), 1.0))
    # Until no response waits, all places are taken. Those in progress then have half of their mean
    # length left, weighted by length, since a long response holds its place for longer.
    full = responses * length / slots - LENGTH_SPREAD * length / 2
    steps = max(limit, full + DRAIN * limit)
    context = prompt + ATTENDED * limit
    read = steps * bytes_each * shape.parameters
    read += responses * length * context * per_token
    prompts = responses if vllm else responses / group
    flops = shape.forward(responses * length, context) + shape.forward(prompts * prompt, prompt / 2)
    least = STEP_SECONDS_PER_LAYER["vllm" if vllm else "transformers"]
    return steps * shape.layers * least + max(
        read / (speed * device.bandwidth * BANDWIDTH_UTILISATION),
        flops / (speed * device.flops * COMPUTE_UTILISATION),
    )


def update_seconds(
    study: Study, model: str, method: str, prompts: int, device: Device, gpus: int
) -> float:
    """Return the seconds of a rollout of so many prompts, and of the updates with its responses.

    All GPUs first generate, then update.
    """
    shape, training = shape_of(study.models[model]), study.training_of(method)
    engine, vllm = study.engine_of(model), None
    if training.use_vllm:
        vllm = engine.vllm_tensor_parallel, engine.vllm_gpu_memory
    responses = prompts * training.group_size
    prompt, limit = PROMPT_LENGTH * training.max_prompt_tokens, training.max_response_tokens
    on_each = responses / max(gpus // (vllm[0] if vllm else 1), 1)
    generation = decode_seconds(shape, device, vllm, on_each, prompt, limit, training.group_size)
    # On a CPU the responses to a prompt share the passes over it.
    tokens = (responses if device.is_gpu else prompts) * prompt + responses * MEAN_LENGTH * limit
    # Old log-probs, a reference, at most one for the selection, and the update, whose backward pass counts as
    # two forwards.
    algorithm = study.method(method)
    passes = 1 + (algorithm.kl_coefficient > 0) + (4 if device.is_gpu else 3)
    passes += algorithm.reads != "none" and training.statistics == "current"
    flops = passes * shape.forward(tokens, prompt + ATTENDED * limit)
    return generation + flops / (gpus * device.flops * COMPUTE_UTILISATION)


def training_seconds(study: Study, model: str, method: str, device: Device, gpus: int) -> float:
    """Return the seconds of a training with its checkpoints."""
    training = study.training_of(method)
    batch = training.prompts_per_batch
    rollouts = training.steps * training.prompts_per_mini_batch / batch
    state = WEIGHT_BYTES * shape_of(study.models[model]).parameters * STATES_PER_PARAMETER
    saving = state / SAVED_BYTES_PER_SECOND
    seconds = rollouts * update_seconds(study, model, method, batch, device, gpus)
    checkpoints = seconds / checkpoint_interval(saving)
    if training.checkpoint_every:
        checkpoints = training.steps / training.checkpoint_every
    return seconds + checkpoints * saving


def supervised_seconds(study: Study, model: str, device: Device) -> float:
    """Return the seconds in which a base model is trained on solutions; others are copied."""
    source, training = study.models.get(model), study.training
    length = PROMPT_LENGTH * training.max_prompt_tokens + MEAN_LENGTH * training.max_response_tokens
    if isinstance(source, TinyModel):
        tokens = source.supervised_steps * source.supervised_batch * length
    elif source and source.supervised:
        length = min(length, source.supervised.max_tokens)
        tokens = source.supervised.steps * source.supervised.batch * length
    else:
        return 0.0
    return 3 * shape_of(source).forward(tokens, length / 2) / (device.flops * COMPUTE_UTILISATION)


def intervene_seconds(study: Study, model: str, device: Device) -> float:
    """Return the seconds of the interventions at one checkpoint, in one process.

    Responses to held-out prompts, after each update and once before, count as updates.
    """
    asked = study.interventions
    mini_batch = study.training_of(asked.method).prompts_per_mini_batch
    rollout, held_out = (
        update_seconds(study, model, asked.method, prompts, device, 1)
        for prompts in (asked.rollout_prompts or mini_batch, asked.prompts)
    )
    each = (1 + len(asked.arms) + len(asked.methods)) * (rollout + held_out)
    return MOMENT_ROLLOUTS * rollout + asked.repetitions * each


def answer_seconds(study: Study, model: str, device: Device, responses: int) -> float:
    """Return the seconds in which one checkpoint answers under one decoding.

    Transformers waits for the longest response of every batch, vLLM for the longest of all.
    """
    shape, evaluation, engine = shape_of(study.models[model]), study.evaluation, study.engine
    batch, vllm = min(evaluation.batch_size, responses), None
    if evaluation.backend == "vllm":
        batch, vllm = responses, (engine.vllm_tensor_parallel, engine.vllm_evaluation_memory)
    limit, prompt = evaluation.max_response_tokens, PROMPT_LENGTH * study.training.max_prompt_tokens
    return ceil(responses / batch) * decode_seconds(shape, device, vllm, batch, prompt, limit)


def plan(study: Study, gpu: str = "h100", gpus: int = 8) -> dict[tuple[str, str], Counter[str]]:
    """Return what a study costs, by stage and model.

    Of all jobs together: `jobs`, `hours` one after another, `gpu_hours`, and `disk`, the bytes of the results
    and of one step checkpoint of each training. `memory` are the bytes of the largest job, on GPUs of each of
    its GPUs, and 0 for stages of which none are estimated. `gpus` are those of one training; 1 on a CPU.
    """
    if gpu not in DEVICES:
        raise StudyError([f"--gpu: unknown device {gpu!r}; known: {', '.join(DEVICES)}"])
    totals: dict[tuple[str, str], Counter[str]] = {}
    for job in jobs_of(study):
        model = job.name.split("/")[0]
        if job.stage in ("base", "train", "intervene", "generate"):
            seconds, disk = _cost(study, job, model, DEVICES[gpu], gpus)
            job_gpus = gpus if job.stage == "train" else max(study.gpus_of(job.stage), 1)
            costs: dict[str, Any] = {"jobs": 1, "hours": seconds / 3600, "disk": disk}
            costs["gpu_hours"] = costs["hours"] * job_gpus
            total = totals.setdefault((job.stage, model), Counter(memory=0))
            total.update(costs)
            total["memory"] = max(total["memory"], _memory(study, job, model, DEVICES[gpu], gpus))
    return totals


def _cost(study: Study, job: Job, model: str, device: Device, gpus: int) -> tuple[float, float]:
    """Return seconds, and bytes on the disk, of one job."""
    judge = study.evaluation.verifier
    source = judge if judge and model == "verifier" else study.models[model]
    weights = WEIGHT_BYTES * shape_of(source).parameters
    if job.stage == "base":
        return supervised_seconds(study, model, device), weights
    if job.stage == "train":
        seconds = training_seconds(study, model, job.name.split("/")[1], device, gpus)
        return seconds, weights * (1 + len(study.kept_steps()) + STATES_PER_PARAMETER)
    if job.stage == "intervene":
        return intervene_seconds(study, model, device), 0.0
    responses = sum(map(study.responses, job.rerun_on))
    tokens = responses * MEAN_LENGTH * study.evaluation.max_response_tokens
    # Twice: in work and in results.
    return answer_seconds(study, model, device, responses), 2 * tokens * TEXT_BYTES


def _memory(study: Study, job: Job, model: str, device: Device, gpus: int) -> int:
    """Return the bytes of memory that a job needs, 0 where it is not estimated."""
    if not device.is_gpu and job.stage in SETTING:
        return int(needed_bytes(study, job.stage, model, job.name.split("/")[1]))
    if device.is_gpu and job.stage == "train" and study.training.use_vllm:
        needed = gpu_bytes(study, model, job.name.split("/")[1], gpus, device.memory)
        return int(needed) if needed < inf else 0
    return 0


def plan_document(study: Study, gpu: str, gpus: int) -> dict[str, Any]:
    """Return the document of `stapo plan --json`."""
    costs = plan(study, gpu, gpus).items()
    rows = [{"stage": stage, "model": model, **cost} for (stage, model), cost in costs]
    return {"study": study.name, "gpu": gpu, "gpus": gpus, "rows": rows}


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.0f}" if size >= 1e10 else f"{size / 1e9:.2g}"


def print_plan(study: Study, gpu: str, gpus: int, console: Console, dollars: float = 0.0) -> None:
    """Print what a study costs in all, then by stage and model, and what the numbers rest on.

    `dollars` is the price of an hour of a device; with 0, nothing is said of money.
    """
    costs = plan(study, gpu, gpus)
    hours, disk = (sum(cost[key] for cost in costs.values()) for key in ("gpu_hours", "disk"))
    each = f", {gpus} x {gpu} for each training" if study.run.methods else ""
    title = f"{study.name}{each}: {hours:,.2f} hours of {gpu}"
    title += f", {dollars * hours:,.0f} dollars" if dollars else ""
    free = f"{_gigabytes(disk_usage('.').free)} GB free here"
    console.print(Text(f"{title}, {_gigabytes(disk)} GB of disk ({free})"), soft_wrap=True)
    if study.gpus_of("train"):
        # Trainings beside each other, as many as there is room for.
        whole = (f"{span(3600 * hours / count)} on {count}" for count in (gpus, 8 * gpus))
        console.print(Text(f"if no {gpu} ever waits: {', '.join(whole)}"))
    device = DEVICES[gpu]
    table = table_of(
        "", "stage", "model", "jobs", "each", f"hours of {gpu}", "GB disk", "GB memory"
    )
    for (stage, model), cost in costs.items():
        mean = span(3600 * cost["hours"] / cost["jobs"])
        numbers = [f"{cost['gpu_hours']:,.2f}", _gigabytes(cost["disk"])]
        numbers.append(_gigabytes(cost["memory"]) if cost["memory"] else "-")
        table.add_row(stage, model, str(cost["jobs"]), mean, *numbers)
    console.print(table)
    for line in (
        does_not_fit(study, gpu, gpus, device.memory) if device.is_gpu else too_large(study)
    ):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    for line in (*lines_of("waiting", progress(study)), ESTIMATED):
        console.print(Text(line), style="dim", soft_wrap=True)
