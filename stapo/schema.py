"""The sections of a study file: every setting, its type, range and meaning. No torch here."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    Tag,
)

from stapo.methods import AggregationName

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$")]
"""Becomes a directory and a wildcard; no underscore, which separates the words of rule names."""
Revision = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|main)$")]
"""A commit; `main` where none is known yet, of which `check` and `doctor` warn."""
OpenUnit = Annotated[float, Field(gt=0, lt=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]


class Strict(BaseModel):
    """Unknown keys are errors; NaN and infinity are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class HubModel(Strict):
    """A model on the Hugging Face Hub."""

    hub: str = Field(description="Repository id, such as Qwen/Qwen3-1.7B-Base")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")


class TinyModel(Strict):
    """A Qwen3 built from scratch and supervised on sloppy worked solutions of the tiny world."""

    builder: Literal["tiny-arithmetic"]
    hidden_size: PositiveInt = Field(96, description="Width")
    layers: PositiveInt = 2
    heads: PositiveInt = Field(4, description="Query heads of 32; half as many key-value heads")
    intermediate_size: PositiveInt = 320
    supervised_steps: PositiveInt = Field(description="Updates of the supervised start")
    supervised_batch: PositiveInt = 96
    learning_rate: PositiveFloat = 3.0e-3
    seed: int = 0


class HubData(Strict):
    """Training prompts on the Hugging Face Hub."""

    hub: str
    revision: Revision
    split: str = "train"


class TinyData(Strict):
    """Training prompts of the tiny world, disjoint from its benchmarks by construction."""

    builder: Literal["tiny-arithmetic"]
    prompts: PositiveInt = Field(description="Unique prompts")
    seed: int = 0


def _source(value: Any) -> str:
    has_hub = "hub" in value if isinstance(value, Mapping) else hasattr(value, "hub")
    return "hub" if has_hub else "builder"


Model = Annotated[
    Annotated[HubModel, Tag("hub")] | Annotated[TinyModel, Tag("builder")], Discriminator(_source)
]
Data = Annotated[
    Annotated[HubData, Tag("hub")] | Annotated[TinyData, Tag("builder")], Discriminator(_source)
]


class Training(Strict):
    """What all methods of a study share."""

    steps: PositiveInt = Field(description="Optimiser steps, one per mini-batch")
    prompts_per_batch: PositiveInt = Field(description="Prompts per rollout")
    group_size: int = Field(ge=2, description="Responses per prompt, G")
    prompts_per_mini_batch: PositiveInt = Field(description="Prompts per optimiser step")
    micro_batch_tokens: PositiveInt = Field(
        description="Token budget (prompt and response, padded) of one forward and backward pass"
    )
    learning_rate: PositiveFloat
    warmup_steps: int = Field(0, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    gradient_clip: PositiveFloat = 1.0
    max_prompt_tokens: PositiveInt
    max_response_tokens: PositiveInt
    temperature: PositiveFloat = 1.0
    top_p: Fraction = 1.0
    advantage_epsilon: PositiveFloat = 1.0e-6
    statistics: Literal["behaviour", "current"] = Field(
        "behaviour",
        description="Policy whose probabilities and entropies select tokens",
    )
    rollouts: Literal["transformers", "vllm-colocate", "vllm-server"] = Field(
        "transformers", description="What generates the responses of the training"
    )
    instruction: str = Field("", description="Appended to every training prompt")
    checkpoint_every: PositiveInt = Field(
        1,
        description="Optimiser steps between step checkpoints; a kill loses at most so many steps",
    )
    keep_checkpoints: PositiveInt = Field(2, description="Step checkpoints kept for resuming")
    evaluate_every: PositiveInt | None = Field(
        None, description="Steps between weights that are kept and evaluated; the last always are"
    )


class Engine(Strict):
    """How trainings run on the machines at hand; nothing here determines a result."""

    tracker: Literal["tensorboard", "wandb", "trackio", "none"] = Field(
        "tensorboard", description="Where curves go while a training runs, besides metrics.jsonl"
    )
    vllm_gpu_memory: OpenUnit = Field(
        0.3, description="Share of a GPU's memory for colocated vLLM, asleep during updates"
    )
    vllm_tensor_parallel: PositiveInt = Field(1, description="GPUs of one colocated vLLM engine")
    vllm_evaluation_memory: OpenUnit = Field(
        0.9, description="Share of a GPU's memory for vLLM in evaluation"
    )
    data_parallel: PositiveInt = Field(1, description="Replicas of a checkpoint in evaluation")
    vllm_server: str = Field(
        "http://127.0.0.1:8000", description="Address of `trl vllm-serve`, for vllm-server"
    )


class MethodSettings(Strict):
    """Deviations from a method of `stapo.methods`; with `base`, a method of its own name."""

    base: str | None = Field(None, description="Method to start from; default: that of this name")
    title: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,40}$")] | None = None
    clip_low: PositiveFloat | None = None
    clip_high: PositiveFloat | None = None
    aggregation: AggregationName | None = None
    kl_coefficient: float | None = Field(None, ge=0)
    dual_clip: float | None = Field(None, gt=1)
    tau_p: OpenUnit | None = Field(None, description="Probability below which a token is rare")
    quantile: OpenUnit | None = Field(None, description="Of the entropies, for the threshold")
    scope: Literal["candidates", "all"] | None = None
    fraction: Fraction | None = Field(None, description="Share of tokens that 20-Entropy keeps")


SELECTION_ARGS = ("tau_p", "quantile", "scope", "fraction")


class Decoding(Strict):
    """How responses are sampled in evaluation."""

    temperature: PositiveFloat
    top_p: Fraction
    top_k: int = Field(0, ge=0, description="0: off")


class BenchmarkSettings(Strict):
    """What a study says of a benchmark; the rest stands in `benchmarks/`."""

    samples: PositiveInt = Field(description="Responses per problem, N of avg@N")


class Verifier(Strict):
    """A model that judges the answers which the rules reject."""

    hub: str = Field("opencompass/CompassVerifier-3B", description="Any causal language model")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")
    batch_size: PositiveInt = 32
    max_prompt_tokens: PositiveInt = Field(
        16384, description="A longer prompt loses the front of the response"
    )
    max_response_tokens: PositiveInt = 4


class Evaluation(Strict):
    """How checkpoints are evaluated."""

    backend: Literal["hf", "vllm"] = Field("hf", description="Transformers, or vLLM")
    batch_size: PositiveInt = Field(
        description="Responses generated together; a kill loses at most so many"
    )
    end_tokens: list[str] = Field(
        ["<|im_end|>"],
        description="Tokens that end a response besides the tokenizer's own, where it has them",
    )
    max_response_tokens: PositiveInt
    seed: int = 1234
    verifier: Verifier | None = Field(None, description="Off by default")
    select: Literal["last", "development"] | PositiveInt = Field(
        "last", description="Which checkpoint tables show: last, of that step, best on development"
    )
    development: list[Name] = Field(
        [], description="Benchmarks that only choose checkpoints; no table shows them"
    )
    verdict: Literal["rule", "verifier"] = Field(
        "rule", description="What tables count: the rules alone, or also what the verifier accepts"
    )


class Run(Strict):
    """Which cells of the study are run."""

    sizes: list[Name] = Field(min_length=1)
    methods: list[Name] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    decodings: list[Name] = Field(min_length=1)
    benchmarks: list[Name] = Field(min_length=1)
