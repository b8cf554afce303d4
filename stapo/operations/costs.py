"""First-order model of the time of trainings and evaluations; it reads no files.

Units are seconds, bytes and floating-point operations (FLOPs). Every assumption is a constant below with
its source. tests/unit/operations/test_plan.py compares the time with two published trainings: it agrees with
JustRL's; for the paper's it is unknown what a step is.
"""

from dataclasses import dataclass
from math import ceil, inf, log2

from stapo.methods import Method
from stapo.models.shapes import Shape, shape_of
from stapo.records.arms import MOMENT_ROLLOUTS
from stapo.study import Study
from stapo.study.schema import TrainingSettings

STATES_PER_PARAMETER = 3
"""Numbers in a step checkpoint: the weight and the two moments of Adam."""
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
START_SECONDS = {"vllm": 60.0, "transformers": 5.0}
"""Imports and loading, per job; 5 s is TRL's import on two CPU cores, 60 s our assumption."""
SAVED_BYTES_PER_SECOND = 5e8
"""Of a step checkpoint, with its checksums; 5.2e8 was measured beside one H200."""
WEIGHT_BYTES = 4.0
"""Of a parameter, in float32."""
TEXT_BYTES = 4.0
"""Bytes of one token as UTF-8, our assumption (JSON lines are not compressed)."""


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

    @property
    def weight_bytes(self) -> int:
        """Bytes per weight in generation."""
        return 2 if self.is_gpu else 4


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
    cache = share * gpus * device.memory - device.weight_bytes * shape.parameters
    length = MEAN_LENGTH * limit if vllm else float(limit)
    per_token = device.weight_bytes * shape.cache_values
    slots = min(responses, max(cache / (per_token * (prompt + length)), 1.0))
    # Until no response waits, all places are taken. Those in progress then have half of their mean
    # length left, weighted by length, since a long response holds its place for longer.
    full = responses * length / slots - LENGTH_SPREAD * length / 2
    steps = max(limit, full + DRAIN * limit)
    context = _context(prompt, limit)
    read = steps * device.weight_bytes * shape.parameters
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
    start = START_SECONDS["transformers" if training.rollouts == "transformers" else "vllm"]
    state = WEIGHT_BYTES * shape_of(study.models[size]).parameters * STATES_PER_PARAMETER
    saving = state / SAVED_BYTES_PER_SECOND / training.checkpoint_every
    return start + training.steps * (step_seconds(study, size, method, device, gpus) + saving)


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
    one_batch = decode_seconds(shape, device, vllm, batch, prompt, limit)
    start = START_SECONDS["vllm" if vllm else "transformers"]
    return start + ceil(responses / batch) * one_batch


def _context(prompt: float, limit: int) -> float:
    """Return how many tokens a response token attends to, on average over tokens."""
    return prompt + LENGTH_SPREAD * MEAN_LENGTH * limit / 2
