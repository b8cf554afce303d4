"""Estimate of the memory of a training, for warnings. Not yet measured on GPUs.

Constants marked *fitted* reproduce, within 15 %, what torch's memory trackers say of one pass of this
trainer with packed sequences, at the shapes of 1.7B, 8B and 14B, on 1, 8 and 16 GPUs.
"""

import os

from stapo.models.shapes import Shape, shape_of
from stapo.study import Study, StudyError
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.launch import mini_batch_divisor

MOST_GPUS = 1024
"""Largest number of GPUs of one training that is tried when looking for one that fits."""
RESERVED_BYTES = 3.0e9
"""Bytes of each GPU for CUDA, NCCL and fragmentation, our assumption."""
ASLEEP_BYTES = 3.0e9
"""Bytes of each GPU that a sleeping vLLM keeps (CUDA graphs, communicators); unmeasured, our assumption."""
PROCESS_BYTES = 4.0e9
"""Host memory of each process without weights (libraries, CUDA); unmeasured, our assumption."""
TILE_BYTES = 6 * 4096 * 32768
"""Logits of one tile of TRL's chunked log-probs in float32, and their gradient in bf16."""
ROLLOUT_BYTES = 32
"""Bytes of each response position of a rollout, held by every rank: token id and mask (int64), log-probs of
rollout, policy and reference, and entropies (float32)."""
LAYER_BYTES = {1: (28, 14, 12), 2: (16, 14, 12)}
"""Bytes of each token that the backward pass of one layer holds, per hidden, query and feed-forward value;
fitted. Key 1: on one GPU, where autocast leaves the residual stream in float32; 2: sharded, in bf16."""
HEAD_BYTES = 12
"""Bytes of each token and hidden value in the head; fitted."""
ASSUMED = (
    f"memory is estimated, not measured, with {RESERVED_BYTES / 1e9:.0f} GB of each GPU for CUDA and NCCL, "
    f"{ASLEEP_BYTES / 1e9:.0f} GB for a sleeping vLLM, and {PROCESS_BYTES / 1e9:.0f} GB of host memory for "
    "each process: nothing is refused for it"
)
"""What every warning rests on."""

Parts = dict[str, float]


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
        The phases `update` and `rollout`.
    """
    share = shape.parameters / gpus
    kept = {
        "parameters": 4 * share,
        "reference": (4 if gpus == 1 else 2) * share * kl,
        "Adam": 8 * share,
        "reserved": RESERVED_BYTES,
    }
    responses = training.prompts_per_batch * training.group_size
    awake = engine.vllm_gpu_memory * gpu_memory if training.rollouts == "vllm-colocate" else 0.0
    tokens = max(
        training.micro_batch_tokens, training.max_prompt_tokens + training.max_response_tokens
    )
    update = {
        "gradients": 4 * share,
        "responses": float(ROLLOUT_BYTES * responses * training.max_response_tokens),
        "vLLM asleep": ASLEEP_BYTES if awake else 0.0,
        "layer inputs": float((4 if gpus == 1 else 2) * tokens * shape.layers * shape.hidden),
        "pass": _pass_bytes(shape, tokens, alone=gpus == 1),
    }
    gathered = 4.0 * shape.vocabulary * shape.hidden if gpus > 1 else 0.0
    return {"update": kept | update, "rollout": kept | {"gathered": gathered, "vLLM": awake}}


def _pass_bytes(shape: Shape, tokens: int, alone: bool) -> float:
    """Return the bytes at the peak of a pass with gradient checkpointing, in a layer or in the head."""
    head = shape.vocabulary * shape.hidden
    per_hidden, per_query, per_ffn = LAYER_BYTES[1 if alone else 2]
    values = per_hidden * shape.hidden + per_query * shape.heads * shape.head_dim
    values += per_ffn * shape.ffn
    # The gradient of the head in float32; it is sharded, or added to its parameter, before the layers.
    left = 4 * head if shape.tied or not alone else 0
    layer = tokens * values + (2 if alone else 6) * shape.layer + left
    in_head = (4 if alone else 8) * head + HEAD_BYTES * tokens * shape.hidden + TILE_BYTES
    # On one GPU, autocast holds the bf16 copies of all weights at the end of the forward pass.
    forward = 2 * shape.layers * shape.layer + tokens * (8 * shape.hidden + 6 * shape.ffn)
    return float(max(layer, in_head, forward if alone else 0))


def memory_warnings(study: Study, gpus: int, gpu_memory: float) -> list[str]:
    """Return one line for each size whose training may not fit into `gpus` GPUs, with a number that would.

    A model of unknown shape has no line.
    """
    batch, found = mini_batch_divisor(study), []
    for size in study.run.sizes:
        try:
            phase, need = _worst(study, size, gpus, gpu_memory)
            small = _vllm_warning(study, size, gpu_memory)
        except StudyError:
            continue  # `stapo doctor` warns of it; nothing can be estimated.
        found += [small] * bool(small)
        if sum(need.values()) <= gpu_memory:
            continue
        more = (number for number in range(gpus + 1, MOST_GPUS + 1) if batch % number == 0)
        enough = (
            n for n in more if sum(_worst(study, size, n, gpu_memory)[1].values()) <= gpu_memory
        )
        shown = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in need.items() if value)
        less = "engine.vllm_gpu_memory" if phase == "rollout" else "training.micro_batch_tokens"
        found.append(
            f"models.{size}: a training needs {sum(need.values()) / 1e9:.1f} GB on each of {gpus} GPUs of "
            f"{gpu_memory / 1e9:.1f} GB in its {phase} phase ({shown}); {next(enough, 'no number of')} GPUs "
            f"would be enough; or reduce {less}"
        )
    return found


def _worst(study: Study, size: str, gpus: int, gpu_memory: float) -> tuple[str, Parts]:
    """Return the phase of a training that needs the most memory, and its parts."""
    engine, kl = study.engine_of(size), has_reference(study)
    shape = shape_of(study.model(size))
    phases = memory_per_gpu(shape, study.training, engine, gpus, gpu_memory, kl)
    return max(phases.items(), key=lambda item: sum(item[1].values()))


def _vllm_warning(study: Study, size: str, gpu_memory: float) -> str:
    """Return why the weights and one response, in bf16, do not fit into vLLM's share of its GPUs."""
    training, engine, shape = study.training, study.engine_of(size), shape_of(study.model(size))
    share = engine.vllm_gpu_memory * engine.vllm_tensor_parallel * gpu_memory
    longest = training.max_prompt_tokens + training.max_response_tokens
    least = 2.0 * (shape.parameters + shape.cache_values * longest)
    if training.rollouts != "vllm-colocate" or least <= share:
        return ""
    return (
        f"models.{size}: vLLM's share is {share / 1e9:.1f} GB, but weights and one response need "
        f"{least / 1e9:.1f} GB; increase engine.vllm_gpu_memory or engine.vllm_tensor_parallel"
    )


def has_reference(study: Study) -> bool:
    """Return whether a method of the study has a KL term, so that its training holds a reference model."""
    return any(study.method(name).kl_coefficient > 0 for name in study.run.methods)


def training_warnings(study: Study, size: str, gpus: int, nodes: int) -> list[str]:
    """Return what the estimate says against a training of a size on the GPUs of this machine and others.

    Every process reads the whole model, and the reference model, into host memory before they are sharded.

    Args:
        study: the study with its methods.
        size: size of the training.
        gpus: number of GPUs of the training, one process each.
        nodes: number of machines that share them.
    """
    if gpus == 0:
        return []
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory
    run = study.run.model_copy(update={"sizes": [size]})
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = memory_warnings(study.model_copy(update={"run": run}), gpus, memory)
    found += host_warnings(study, size, gpus, nodes, host)
    return [*found, ASSUMED] if found else []


def host_warnings(study: Study, size: str, gpus: int, nodes: int, host: float) -> list[str]:
    """Return why the processes of a training may not be able to load a size into `host` bytes of memory."""
    try:
        parameters = shape_of(study.model(size)).parameters
    except StudyError:
        return []
    each = PROCESS_BYTES + (4 + (4 if gpus == 1 else 2) * has_reference(study)) * parameters
    here = gpus // nodes
    need = here * each
    if need <= host:
        return []
    return [
        f"models.{size}: {here} processes need {need / 1e9:.0f} GB of host memory to load it, but this "
        f"machine has {host / 1e9:.0f} GB; use more machines (nodes) with fewer GPUs each"
    ]
