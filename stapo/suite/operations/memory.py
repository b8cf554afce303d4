"""Memory that jobs of a study need at their peaks: what `stapo plan` prints and Snakemake counts.

A first-order model of a process without GPU, which computes in float32. Units are bytes; every assumption is
a constant below with its source.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import log2
from pathlib import Path

from stapo.suite.jobs import jobs_of
from stapo.suite.models.shapes import Shape, shape_of
from stapo.suite.study import Study

PROCESS = 0.75e9
"""Python with PyTorch, Transformers and TRL, 0.55 GB as measured, and what its allocator holds."""
NUMBER = 4
"""Bytes of a float32 number."""
STATES = 4
"""Numbers of a parameter in an update: weight, gradient and the two moments of Adam."""
KEPT_WIDTHS, KEPT_HEADS, KEPT_KEYS, KEPT_GATES = 6, 7, 4, 4
"""Tables that a layer keeps of each token for its gradient: of the model's width (inputs, outputs and factors
of two norms), of all query heads (projection, rotation, repeated keys and values, output), of the key-value
heads, and of the feed-forward. Counted in Llama's code of Transformers."""
TILE = 4096, 32768
"""Tokens and words of a tile of logits in TRL's fused head."""
TILES = 6
"""Copies of a tile in the gradient of the head without Triton, counted in TRL's code."""
DRAWS = 6
"""Copies of a batch's logits while a token is drawn, our assumption: logits, scores, probabilities, noise."""
USABLE = 0.95
"""Share of a machine's memory that jobs may fill."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container."""
SETTING = {
    "train": ("training", "micro_batch_tokens"),
    "intervene": ("training", "micro_batch_tokens"),
    "generate": ("evaluation", "batch_size"),
}
"""Stage -> section and name of the setting that its memory follows most."""


def layer_numbers(shape: Shape) -> int:
    """Return how many numbers of a token a layer keeps for its gradient."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    numbers = KEPT_WIDTHS * shape.hidden + KEPT_HEADS * queries
    return numbers + KEPT_KEYS * keys + KEPT_GATES * shape.ffn


def update_bytes(shape: Shape, tokens: int) -> float:
    """Return what a micro-batch of so many tokens keeps until its gradient is computed."""
    # The gradient of the head is summed apart.
    head_gradient = NUMBER * shape.vocabulary * shape.hidden
    layers = shape.layers * layer_numbers(shape)
    return NUMBER * tokens * layers + head_bytes(shape, tokens) + head_gradient


def head_bytes(shape: Shape, tokens: int) -> float:
    """Return what the log-probs of so many tokens need, or their gradient."""
    return NUMBER * TILES * min(tokens, TILE[0]) * min(shape.vocabulary, TILE[1])


def answer_bytes(shape: Shape, responses: int, prompt: int, limit: int) -> float:
    """Return what responses that are generated together need: keys, values and logits."""
    cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * (prompt + limit)
    return NUMBER * responses * (cache + DRAWS * shape.vocabulary)


def training_bytes(study: Study, model: str, method: str) -> float:
    """Return the peak of a training."""
    shape, training = shape_of(study.models[model]), study.training_of(method)
    prompt, limit = training.max_prompt_tokens, training.max_response_tokens
    # A longer sequence is a micro-batch of its own.
    budget = max(training.micro_batch_tokens, prompt + limit)
    responses, updated = (
        prompts * training.group_size
        for prompts in (training.prompts_per_batch, training.prompts_per_mini_batch)
    )
    has_reference = study.method(method).kl_coefficient > 0
    weights = NUMBER * shape.parameters
    # Gradients exist in an update alone.
    phases = (
        weights + update_bytes(shape, min(budget, updated * (prompt + limit))),
        answer_bytes(shape, responses, prompt, limit),
        head_bytes(shape, min(budget, responses * (prompt + limit))),
    )
    return PROCESS + (STATES - 1 + has_reference) * weights + max(phases)


def needed_bytes(study: Study, stage: str, model: str, method: str = "") -> float:
    """Return the peak of a job of `train`, `intervene` or `generate`; the method is that of a training."""
    training, evaluation = study.training, study.evaluation
    if stage == "train":
        return training_bytes(study, model, method)
    shape = shape_of(study.models[model])
    weights = NUMBER * shape.parameters
    if stage == "intervene":
        # With the weights and moments to which each arm goes back, and three gradients that are compared.
        return training_bytes(study, model, study.interventions.method) + 5 * weights
    lengths = training.max_prompt_tokens, evaluation.max_response_tokens
    return PROCESS + weights + answer_bytes(shape, evaluation.batch_size, *lengths)


def machine_bytes() -> float:
    """Return what jobs may fill of the memory of this machine, or of this container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in LIMITS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text(encoding="utf-8")))
    return USABLE * total


def too_large(study: Study, stages: Iterable[str] = SETTING) -> Iterator[str]:
    """Yield a line for each kind of job without GPU that does not fit into this machine, and what to set."""
    room = machine_bytes()
    methods: dict[tuple[str, str], set[str]] = {}
    for job in jobs_of(study):
        if job.stage in stages and not study.gpus_of(job.stage):
            model, method = job.name.split("/")[:2]
            methods.setdefault((job.stage, model), set()).add(method)
    for (stage, model), names in methods.items():
        needed = max(needed_bytes(study, stage, model, name) for name in names)
        if needed > room:
            cause = f"{stage} {model}: a job needs about {needed / 1e9:.1f} GB of memory"
            remedy = _remedy(study, stage, model, names, room)
            yield f"{cause}, this machine has {room / 1e9:.1f} for jobs; {remedy}"


def _remedy(study: Study, stage: str, model: str, methods: Iterable[str], room: float) -> str:
    """Return what makes jobs fit: the largest power of two for the setting of their stage, from 32."""
    for words, smaller in halved(study, stage):
        if all(needed_bytes(smaller, stage, model, method) <= room for method in methods):
            return words
    return "choose a smaller model, or shorter or fewer responses at a time"


def halved(study: Study, stage: str) -> Iterator[tuple[str, Study]]:
    """Yield words and study with ever smaller powers of two, down to 32, of the setting of a stage."""
    section, name = SETTING[stage]
    given = getattr(study, section)
    for power in range(int(log2(getattr(given, name))), 4, -1):
        changed = given.model_copy(update={name: 2**power})
        yield f"set {section}.{name}: {2**power}", study.model_copy(update={section: changed})
