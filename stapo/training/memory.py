"""Estimate of the GPU memory of a training, made before it starts. Not yet measured on GPUs."""

from math import gcd

from stapo.models.shapes import Shape, shapes_of
from stapo.study import Study
from stapo.study.schema import EngineSettings, TrainingSettings

MOST_GPUS = 1024
"""Largest number of GPUs of one training that is tried when looking for one that fits."""
RESERVED_BYTES = 3.0e9
"""Bytes of each GPU for CUDA, NCCL and fragmentation, our assumption."""
LOGIT_TOKENS = 4096
"""Tokens whose logits exist at once in TRL's chunked log-probs (trl/kernels, TOKEN_CHUNK_SIZE)."""


def memory_errors(study: Study, gpus_per_training: int, gpu_memory_bytes: float) -> list[str]:
    """Return one line for each size whose training does not fit, with settings that would.

    Args:
        study: the study with its sizes and methods.
        gpus_per_training: number of GPUs over which a training is sharded.
        gpu_memory_bytes: memory of one GPU.
    """
    training, engine, errors = study.training, study.engine, []
    kl = any(study.method(name).kl_coefficient > 0 for name in study.run.methods)
    own = [study.training_of(name) for name in study.run.methods]
    batch = gcd(*(one.prompts_per_mini_batch * one.group_size for one in own))
    if batch % gpus_per_training:
        errors.append(
            f"training.prompts_per_mini_batch: a mini-batch of {batch} responses is not divisible by "
            f"{gpus_per_training} GPUs; choose a number of GPUs that divides it"
        )
    for size, shape in shapes_of(study).items():

        def parts(gpus: int, shape: Shape = shape) -> dict[str, float]:
            return memory_per_gpu(shape, training, engine, gpus, gpu_memory_bytes, kl)

        need = parts(gpus_per_training)
        share, least = need["vLLM"] * engine.vllm_tensor_parallel, least_vllm(shape, training)
        peak = peak_memory(need)
        if 0 < share < least:
            errors.append(
                f"models.{size}: vLLM's share is {share / 1e9:.1f} GB, but weights and one response need "
                f"{least / 1e9:.1f} GB; increase engine.vllm_gpu_memory or engine.vllm_tensor_parallel"
            )
        elif peak > gpu_memory_bytes:
            more = (g for g in range(gpus_per_training + 1, MOST_GPUS + 1) if batch % g == 0)
            enough = (g for g in more if peak_memory(parts(g)) <= gpu_memory_bytes)
            shown = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in need.items() if value)
            errors.append(
                f"models.{size}: a training needs {peak / 1e9:.1f} GB on each of {gpus_per_training} GPUs of "
                f"{gpu_memory_bytes / 1e9:.1f} GB ({shown}); {next(enough, 'no number of')} GPUs would be "
                "enough; or reduce training.micro_batch_tokens"
            )
    return errors


def memory_per_gpu(
    shape: Shape,
    training: TrainingSettings,
    engine: EngineSettings,
    gpus: int,
    gpu_memory: float,
    kl: bool,
) -> dict[str, float]:
    """Return the bytes that a training needs of each GPU, by part.

    The policy is loaded in fp32 (stapo.training.run) and computes in bf16. Its fp32 parameters, gradients
    and two moments of Adam are sharded over the GPUs. Not sharded, in bf16, are the embeddings and two
    layers with their gradients; on one GPU it is everything that autocast keeps. Gradient checkpointing
    keeps the inputs of all layers (fp32), and the activations of one layer with their gradients (bf16).

    Args:
        shape: shape of the model.
        training: lengths, token budget and rollout backend.
        engine: memory share of a colocated vLLM.
        gpus: number of GPUs of the training.
        gpu_memory: bytes of one GPU.
        kl: whether a reference model, also fp32 and sharded, is loaded.
    """
    tokens = max(
        training.micro_batch_tokens, training.max_prompt_tokens + training.max_response_tokens
    )
    inside = 6 * shape.hidden + 2 * (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    copies = shape.parameters if gpus == 1 else 2 * (shape.embedding + 2 * shape.layer)
    colocated = training.rollouts == "vllm-colocate"
    return {
        "parameters": 4 * shape.parameters / gpus,
        "reference": 4 * shape.parameters / gpus if kl else 0.0,
        "Adam": 8 * shape.parameters / gpus,
        "gradients": 4 * shape.parameters / gpus,
        "bf16 copies": 2 * copies,
        "activations": tokens * (4 * shape.layers * shape.hidden + 4 * (inside + 4 * shape.ffn)),
        "logits": 2 * 4 * min(tokens, LOGIT_TOKENS) * shape.vocabulary,
        "vLLM": engine.vllm_gpu_memory * gpu_memory if colocated else 0.0,
        "reserved": RESERVED_BYTES,
    }


def least_vllm(shape: Shape, training: TrainingSettings) -> float:
    """Return the bytes that vLLM needs for the weights and the longest sequence, in bf16."""
    longest = training.max_prompt_tokens + training.max_response_tokens
    return 2.0 * (shape.parameters + shape.cache_values * longest)


def peak_memory(parts: dict[str, float]) -> float:
    """Return the peak in bytes: vLLM sleeps during updates, and gradients are freed during rollouts."""
    kept = sum(parts[name] for name in ("parameters", "reference", "Adam", "reserved"))
    update = sum(parts[name] for name in ("gradients", "bf16 copies", "activations", "logits"))
    return kept + max(update, parts["vLLM"])
