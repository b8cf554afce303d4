"""Estimate of the GPU and host memory of a training, made before it starts. Not yet measured on GPUs.

The formulas are those of a pass with packed sequences: `tests/unit/training/test_memory.py` and
`tests/performance/bench_memory.py` compare them with torch's memory trackers, which run the same model,
sharding and head on shapes alone. Constants marked *fitted* come from there.
"""

from math import gcd

from stapo.models.shapes import Shape, shape_of
from stapo.study import Study, StudyError
from stapo.study.schema import EngineSettings, TrainingSettings

MOST_GPUS = 1024
"""Largest number of GPUs of one training that is tried when looking for one that fits."""
GPUS_PER_NODE = 8
"""GPUs of one machine, for the estimate of its memory."""
RESERVED_BYTES = 3.0e9
"""Bytes of each GPU for CUDA, NCCL and fragmentation, our assumption."""
ASLEEP_BYTES = 3.0e9
"""Bytes of each GPU that a sleeping vLLM keeps (CUDA graphs, communicators); unmeasured, our assumption."""
PROCESS_BYTES = 4.0e9
"""Host memory of each process without weights (libraries, CUDA); unmeasured, our assumption."""
LOGIT_TOKENS = 4096
"""Tokens whose logits exist at once in TRL's chunked log-probs (trl/kernels, TOKEN_CHUNK_SIZE)."""
TILE_BYTES = 4 * LOGIT_TOKENS * 32768
"""Bytes of these logits in float32: a part of the vocabulary at a time."""
GRADIENT_TILE_BYTES = 2 * LOGIT_TOKENS * 32768
"""Bytes of the gradient of these logits in bf16, beside them in a backward pass."""
ROLLOUT_BYTES = 32
"""Bytes of each response position of a rollout, held by every rank: token id and mask (int64), log-probs of
rollout, policy and reference, and entropies (float32)."""
LAYER_BYTES = {1: (28, 14, 12), 2: (16, 14, 12)}
"""Bytes of each token that the backward pass of one layer holds, per hidden, query and feed-forward value;
fitted. Key 1: on one GPU, where autocast leaves the residual stream in float32; 2: sharded, in bf16."""
FORWARD_BYTES = (8, 6)
"""The same for a forward pass without gradient, per hidden and feed-forward value; fitted."""
HEAD_BYTES = 12
"""Bytes of each token and hidden value in the head; fitted."""

JUDGED_TOKENS = 2**16
"""Positions of one batch of the verifier on Transformers (`BATCH_TOKENS` of stapo.evaluation.verifier)."""

Parts = dict[str, float]


ASSUMED = (
    f"memory is estimated, not measured, with {RESERVED_BYTES / 1e9:.0f} GB of each GPU for CUDA and NCCL, "
    f"{ASLEEP_BYTES / 1e9:.0f} GB for a sleeping vLLM, and {PROCESS_BYTES / 1e9:.0f} GB of host memory for "
    "each process: nothing is refused for it"
)
"""What every warning rests on."""


def division_errors(study: Study, gpus: int) -> list[str]:
    """Return why a mini-batch of the study's trainings cannot be divided among a number of GPUs."""
    batch = mini_batch_divisor(study)
    if batch % gpus == 0:
        return []
    return [
        f"training.prompts_per_mini_batch: a mini-batch of {batch} responses is not divisible by "
        f"{gpus} GPUs; choose a number of GPUs that divides it"
    ]


def memory_warnings(study: Study, gpus_per_training: int, gpu_memory_bytes: float) -> list[str]:
    """Return one line for each size whose training may not fit, with settings that would.

    A model of unknown shape has no line.

    Args:
        study: the study with its sizes and methods.
        gpus_per_training: number of GPUs over which a training is sharded.
        gpu_memory_bytes: memory of one GPU.
    """
    found, batch = [], mini_batch_divisor(study)
    for size in study.run.sizes:
        try:
            shape = shape_of(study.model(size))
        except StudyError:
            continue  # `stapo doctor` warns of it; nothing can be estimated.
        line = _size_warning(study, size, shape, gpus_per_training, gpu_memory_bytes, batch)
        found += [line] * bool(line)
    return found


def host_warnings(study: Study, size: str, gpus: int, nodes: int, host_bytes: float) -> list[str]:
    """Return why the processes of a training may not be able to load a size into the memory of a machine.

    Args:
        study: the study with its methods.
        size: size of the training.
        gpus: number of GPUs of the training, one process each.
        nodes: number of machines that share them.
        host_bytes: memory of one machine.
    """
    try:
        shape = shape_of(study.model(size))
    except StudyError:
        return []
    here = gpus // nodes
    need = here * host_memory(shape, gpus, has_reference(study))[0]
    if need <= host_bytes:
        return []
    return [
        f"models.{size}: {here} processes need {need / 1e9:.0f} GB of host memory to load it, but this "
        f"machine has {host_bytes / 1e9:.0f} GB; use more machines (nodes) with fewer GPUs each"
    ]


def verifier_warnings(study: Study, gpu_memory: float) -> list[str]:
    """Return why the verifier may not fit into a GPU; empty if it does, or if there is none."""
    verifier, engine = study.evaluation.verifier, study.engine
    if verifier is None:
        return []
    try:
        shape = shape_of(verifier)
    except StudyError:
        return []
    longest = verifier.max_prompt_tokens + verifier.max_response_tokens
    if study.evaluation.backend == "vllm":
        need, remedy = sequence_memory(shape, longest), "increase engine.vllm_evaluation_memory"
        there = engine.vllm_evaluation_memory * engine.vllm_tensor_parallel * gpu_memory
    else:
        rows = max(min(verifier.batch_size, JUDGED_TOKENS // longest), 1)
        need, there = verifier_memory(shape, rows * longest, rows), gpu_memory
        remedy = "reduce evaluation.verifier.max_prompt_tokens"
    if need <= there:
        return []
    return [
        f"evaluation.verifier: it needs {need / 1e9:.1f} GB, but has {there / 1e9:.1f} GB of a GPU of "
        f"{gpu_memory / 1e9:.1f} GB; {remedy}"
    ]


def mini_batch_divisor(study: Study) -> int:
    """Return the number of responses that every number of GPUs of the study's trainings must divide."""
    own = [study.training_of(name) for name in study.run.methods]
    return gcd(*(one.prompts_per_mini_batch * one.group_size for one in own))


def has_reference(study: Study) -> bool:
    """Return whether a method of the study has a KL term, so that its training holds a reference model."""
    return any(study.method(name).kl_coefficient > 0 for name in study.run.methods)


def _size_warning(
    study: Study, size: str, shape: Shape, gpus: int, gpu_memory: float, batch: int
) -> str:
    training, engine, kl = study.training, study.engine_of(size), has_reference(study)

    def worst(number: int) -> tuple[str, Parts]:
        phases = memory_per_gpu(shape, training, engine, number, gpu_memory, kl)
        return max(phases.items(), key=lambda item: sum(item[1].values()))

    share = vllm_bytes(training, engine, gpu_memory) * engine.vllm_tensor_parallel
    least = least_vllm(shape, training)
    if 0 < share < least:
        return (
            f"models.{size}: vLLM's share is {share / 1e9:.1f} GB, but weights and one response need "
            f"{least / 1e9:.1f} GB; increase engine.vllm_gpu_memory or engine.vllm_tensor_parallel"
        )
    phase, need = worst(gpus)
    peak = sum(need.values())
    if peak <= gpu_memory:
        return ""
    more = (number for number in range(gpus + 1, MOST_GPUS + 1) if batch % number == 0)
    enough = (number for number in more if sum(worst(number)[1].values()) <= gpu_memory)
    shown = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in need.items() if value)
    less = "engine.vllm_gpu_memory" if phase == "rollout" else "training.micro_batch_tokens"
    return (
        f"models.{size}: a training needs {peak / 1e9:.1f} GB on each of {gpus} GPUs of "
        f"{gpu_memory / 1e9:.1f} GB in its {phase} phase ({shown}); {next(enough, 'no number of')} GPUs "
        f"would be enough; or reduce {less}"
    )


def vllm_bytes(training: TrainingSettings, engine: EngineSettings, gpu_memory: float) -> float:
    """Return the bytes of each GPU that a colocated vLLM takes while it is awake."""
    return engine.vllm_gpu_memory * gpu_memory if training.rollouts == "vllm-colocate" else 0.0


def reference_bytes(gpus: int) -> float:
    """Return the bytes of each parameter of a reference model: bf16 where FSDP2 computes in it."""
    return 4.0 if gpus == 1 else 2.0


def memory_per_gpu(
    shape: Shape,
    training: TrainingSettings,
    engine: EngineSettings,
    gpus: int,
    gpu_memory: float,
    kl: bool,
) -> dict[str, Parts]:
    """Return the bytes that a training needs of each GPU at the peak of each phase, by part.

    Parameters, gradients and Adam's moments are float32 and sharded over the GPUs, and so is the reference
    model, in bf16 if there are several. In `rollout`, weights are gathered one by one for vLLM, and its
    share counts as a whole, although its cache comes only after them.

    Args:
        shape: shape of the model.
        training: lengths, token budget and rollout backend.
        engine: memory share of a colocated vLLM.
        gpus: number of GPUs of the training.
        gpu_memory: bytes of one GPU.
        kl: whether a reference model is loaded.

    Returns:
        The phases `update` and `rollout`, and with a reference model `reference`.
    """
    tokens = max(
        training.micro_batch_tokens, training.max_prompt_tokens + training.max_response_tokens
    )
    kept = {
        "parameters": 4 * shape.parameters / gpus,
        "reference": reference_bytes(gpus) * shape.parameters / gpus if kl else 0.0,
        "Adam": 8 * shape.parameters / gpus,
        "reserved": RESERVED_BYTES,
    }
    responses = training.prompts_per_batch * training.group_size
    awake = vllm_bytes(training, engine, gpu_memory)
    asleep = kept | {
        "responses": float(ROLLOUT_BYTES * responses * training.max_response_tokens),
        "vLLM asleep": ASLEEP_BYTES if awake else 0.0,
    }
    gathered = 4.0 * shape.vocabulary * shape.hidden if gpus > 1 else 0.0
    update = {"gradients": 4 * shape.parameters / gpus, **_update_pass(shape, tokens, gpus)}
    phases = {"update": asleep | update, "rollout": kept | {"gathered": gathered, "vLLM": awake}}
    if kl:
        phases["reference"] = asleep | {"pass": _reference_pass(shape, tokens, gpus)}
    return phases


def _update_pass(shape: Shape, tokens: int, gpus: int) -> Parts:
    """Return the bytes at the peak of a forward and backward pass with gradient checkpointing.

    The peak is in the head, in the last layer (with what the head left), or, on one GPU, at the end of the
    forward pass, where autocast still holds the bf16 copies of all weights.
    """
    alone = gpus == 1
    head = shape.vocabulary * shape.hidden
    per_hidden, per_query, per_ffn = LAYER_BYTES[1 if alone else 2]
    values = per_hidden * shape.hidden + per_query * shape.heads * shape.head_dim
    values += per_ffn * shape.ffn
    # The gradient of the head in float32; it is sharded, or added to its parameter, before the layers.
    left = 4 * head if shape.tied or not alone else 0
    peaks = {
        "layer": tokens * values + (2 if alone else 6) * shape.layer + left,
        "head": (4 if alone else 8) * head
        + HEAD_BYTES * tokens * shape.hidden
        + TILE_BYTES
        + GRADIENT_TILE_BYTES,
    }
    if alone:
        per_hidden, per_ffn = FORWARD_BYTES
        passing = tokens * (per_hidden * shape.hidden + per_ffn * shape.ffn)
        peaks["forward"] = 2 * shape.layers * shape.layer + passing
    inputs = (4 if alone else 2) * tokens * shape.layers * shape.hidden
    return {"layer inputs": float(inputs), "pass": float(max(peaks.values()))}


def _reference_pass(shape: Shape, tokens: int, gpus: int) -> float:
    """Return the bytes at the peak of a forward pass without gradient, in a layer or in the head."""
    per_hidden, per_ffn = FORWARD_BYTES
    layer = tokens * (per_hidden * shape.hidden + per_ffn * shape.ffn)
    in_head = HEAD_BYTES * tokens * shape.hidden + TILE_BYTES
    if gpus == 1:
        return float(max(layer, in_head))
    # A layer and the next one, once as they arrive and once as they are used; tied weights stay.
    head = shape.vocabulary * shape.hidden
    layer += 4 * shape.layer + (2 * head if shape.tied else 0)
    return float(max(layer, in_head + (2 if shape.tied else 4) * head))


def least_vllm(shape: Shape, training: TrainingSettings) -> float:
    """Return the bytes that a training's vLLM needs for the weights and the longest sequence, in bf16."""
    return sequence_memory(shape, training.max_prompt_tokens + training.max_response_tokens)


def sequence_memory(shape: Shape, longest: int) -> float:
    """Return the bytes of the weights and the key-value cache of a sequence of `longest` tokens, in bf16."""
    return 2.0 * (shape.parameters + shape.cache_values * longest)


def peak_memory(phases: dict[str, Parts]) -> float:
    """Return the peak in bytes over all phases."""
    return max(sum(parts.values()) for parts in phases.values())


def host_memory(shape: Shape, gpus: int, kl: bool) -> tuple[float, float]:
    """Return the host memory in bytes of each process of a training, and of each machine.

    Every process reads the whole model in float32, and the reference model, before they are sharded. Later
    needs are smaller: the main process gathers the weights in float32, and a step checkpoint passes through
    in shards.

    Args:
        shape: shape of the model.
        gpus: number of GPUs of the training.
        kl: whether a reference model is loaded.
    """
    each = PROCESS_BYTES + (4.0 + reference_bytes(gpus) * kl) * shape.parameters
    return each, each * min(gpus, GPUS_PER_NODE)


def verifier_memory(shape: Shape, tokens: int, rows: int) -> float:
    """Return the bytes that a verifier on Transformers needs of its GPU, in bf16.

    Args:
        shape: shape of the verifier.
        tokens: positions of one batch, with padding.
        rows: prompts of one batch.
    """
    per_hidden, per_ffn = FORWARD_BYTES
    passing = tokens * (per_hidden * shape.hidden + per_ffn * shape.ffn + 2 * shape.cache_values)
    # The mask of a padded batch: rows x length x length, as numbers in bf16 and as booleans.
    mask = 3 * tokens * tokens / max(rows, 1)
    return RESERVED_BYTES + 2.0 * shape.parameters + passing + mask
