"""Memory of a GPU that a training with colocated vLLM needs at its peaks: what `stapo plan` prints.

A first-order model of FSDP2 over the GPUs of a training, in mixed precision with gradient checkpointing.
Every assumption is a constant below or in `memory`, which has that of jobs without GPU. It is compared with
numbers that torch tracked on shapes alone, and with a sleeping vLLM on an H200; no training was measured.
"""

from collections.abc import Iterator
from math import ceil, gcd, inf, log2

from stapo.suite.models.shapes import Shape, shape_of
from stapo.suite.operations.memory import NUMBER, STATES, USABLE, halved, head_bytes, layer_numbers
from stapo.suite.study import Study
from stapo.suite.study.schema import ModelEngine

HALF = 2
"""Bytes of a bfloat16 number."""
ASLEEP = 4.8e9
"""What vLLM holds during updates beside its weights: 8.2 GB were measured, with 3.4 GB of weights."""
GATHERED_LAYERS = 2
"""Layers whose parameters are whole on each GPU: the present one, and the next, which is fetched before."""
SHARES = (0.65, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Of a GPU's memory for vLLM, which are tried where the study's does not fit."""


def update_peak(shape: Shape, tokens: int, gpus: int, has_reference: bool) -> float:
    """Return the bytes of one GPU at the peak of an update, without vLLM."""
    states = NUMBER * shape.parameters * (STATES + has_reference) / gpus
    # One GPU keeps bfloat16 copies of all parameters, several those of the layers that they gather.
    root = shape.parameters - shape.layers * shape.layer
    copies = shape.parameters if gpus == 1 else root + GATHERED_LAYERS * shape.layer
    checkpoints = HALF * tokens * shape.layers * shape.hidden
    return (
        states
        + HALF * copies
        + checkpoints
        + max(HALF * tokens * layer_numbers(shape), head_bytes(shape, tokens))
    )


def gpu_bytes(study: Study, model: str, method: str, gpus: int, memory: float) -> float:
    """Return what each GPU of a training needs, of `memory` bytes, of which vLLM takes its share.

    It is infinite where an engine cannot start: its weights exceed its share, or its size does not divide the
    number of GPUs.
    """
    shape, training = shape_of(study.models[model]), study.training_of(method)
    engine, has_reference = study.engine_of(model), study.method(method).kl_coefficient > 0
    # A longer sequence is a micro-batch of its own.
    longest = training.max_prompt_tokens + training.max_response_tokens
    tokens = max(training.micro_batch_tokens, longest)
    weights = HALF * shape.parameters / engine.vllm_tensor_parallel
    if weights >= engine.vllm_gpu_memory * memory or gpus % engine.vllm_tensor_parallel:
        return inf  # An engine does not start.
    # Gradients exist in an update alone.
    rollout = NUMBER * shape.parameters * (STATES - 1 + has_reference) / gpus
    rollout += engine.vllm_gpu_memory * memory
    return max(rollout, update_peak(shape, tokens, gpus, has_reference) + ASLEEP + weights)


def does_not_fit(study: Study, gpu: str, gpus: int, memory: float) -> Iterator[str]:
    """Yield a line for each kind of job that does not fit into GPUs, and what makes it fit."""
    trained = study.run.models if study.training.use_vllm and study.run.methods else []
    for model in trained:
        if (size := _largest(study, model, gpus, memory)) > USABLE * memory:
            fitting = (
                words
                for words, changed, number in _remedies(study, model, gpus)
                if _largest(changed, model, number, memory) <= USABLE * memory
            )
            remedy = next(fitting, "choose a smaller model, or shorter responses")
            cause = f"a training needs about {size / 1e9:.0f} GB of each GPU, {gpu} has "
            cause += f"{USABLE * memory / 1e9:.0f} for it"
            if size == inf:
                engine = study.engine_of(model)
                cause = f"vLLM does not start on {engine.vllm_tensor_parallel} of {gpus} {gpu} "
                cause += f"with {engine.vllm_gpu_memory} of their memory"
            yield f"train {model}: {cause}; {remedy}"
    engine, share = study.engine, study.engine.vllm_evaluation_memory * memory
    for model in study.run.models if study.evaluation.backend == "vllm" else ():
        whole = HALF * shape_of(study.models[model]).parameters
        if whole / engine.vllm_tensor_parallel > share:
            cause = f"generate {model}: its weights are {whole / 1e9:.0f} GB"
            remedy = f"set engine.vllm_tensor_parallel: {2 ** ceil(log2(whole / share))}"
            yield f"{cause}, vLLM has {share / 1e9:.0f} of {gpu}; {remedy}"


def _largest(study: Study, model: str, gpus: int, memory: float) -> float:
    methods = study.run.methods
    return max(gpu_bytes(study, model, method, gpus, memory) for method in methods)


def _remedies(study: Study, model: str, gpus: int) -> Iterator[tuple[str, Study, int]]:
    """Yield what may make a training fit: words, and the changed study or number of GPUs."""
    yield from ((words, changed, gpus) for words, changed in halved(study, "train"))
    engine = study.engine_of(model)
    given = study.engine.models.get(model, ModelEngine())
    for share in SHARES:
        if share != engine.vllm_gpu_memory:
            settings = given.model_copy(update={"vllm_gpu_memory": share})
            change = {"models": {**study.engine.models, model: settings}}
            changed = study.model_copy(update={"engine": study.engine.model_copy(update=change)})
            yield f"set engine.models.{model}.vllm_gpu_memory: {share}", changed, gpus
    mini_batches = [
        study.training_of(method).prompts_per_mini_batch * study.training_of(method).group_size
        for method in study.run.methods
    ]
    for power in range(1, 7):
        number = gpus * 2**power
        if gcd(*mini_batches) % number == 0:
            yield f"give each training {number} GPUs (--gpus {number})", study, number
