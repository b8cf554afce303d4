"""Estimate of the memory of a training, for warnings. Not yet measured on GPUs.

Constants marked *fitted* reproduce, within 15 %, what torch's memory trackers say of one pass of this
trainer with packed sequences, at the shapes of 1.7B, 8B and 14B, on 1, 8 and 16 GPUs.
"""

from stapo.models.shapes import Shape, shape_of
from stapo.study import Study, StudyError
from stapo.study.schema import EngineSettings, TrainingSettings

RESERVED_BYTES = 3.0e9
"""Bytes of each GPU for CUDA, NCCL and fragmentation, our assumption."""
ASLEEP_BYTES = 3.0e9
"""Bytes of each GPU that a sleeping vLLM keeps (CUDA graphs, communicators); unmeasured, our assumption."""
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
    """Return one line for each size whose training may not fit into `gpus` GPUs of so many bytes.

    A model of unknown shape has no line.
    """
    kl = any(study.method(name).kl_coefficient > 0 for name in study.run.methods)
    found = []
    for size in study.run.sizes if study.run.methods else ():
        try:
            shape = shape_of(study.model(size))
        except StudyError:
            continue  # `stapo plan` says so; nothing can be estimated.
        engine = study.engine_of(size)
        phases = memory_per_gpu(shape, study.training, engine, gpus, gpu_memory, kl)
        phase, need = max(phases.items(), key=lambda item: sum(item[1].values()))
        if (total := sum(need.values())) > gpu_memory:
            shown = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in need.items() if value)
            less = "engine.vllm_gpu_memory" if phase == "rollout" else "training.micro_batch_tokens"
            found.append(
                f"models.{size}: a training needs {total / 1e9:.1f} GB on each of {gpus} GPUs of "
                f"{gpu_memory / 1e9:.1f} GB in its {phase} phase ({shown}), by an estimate; use more GPUs, "
                f"or reduce {less}"
            )
    return found


def training_warnings(study: Study, size: str, gpus: int) -> list[str]:
    """Return what the estimate says against a training of a size on GPUs as they are here."""
    if gpus == 0:
        return []
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory
    run = study.run.model_copy(update={"sizes": [size]})
    return memory_warnings(study.model_copy(update={"run": run}), gpus, memory)
