"""The sections of a study file: every setting, its type, range and meaning. No torch here."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)

from stapo.methods import AggregationName

INVISIBLE = {"Cc", "Cs", "Cf", "Zl", "Zp"}
"""Unicode categories: controls, surrogates, formats (text that runs backwards), line separators."""
JOINERS = "\u200c\u200d"
"""Formats that scripts and emoji need."""
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+\s*", re.ASCII)
"""Text to YAML 1.1, a number to YAML 1.2 and to everybody who writes it, such as 1e-6."""
PERIODIC = re.compile(r"(.+)\1{19}$")
"""Snakemake takes such a wildcard for an endless recursion."""
NOT_IN_HUB_IDS = ("--", "..")


def _numeric(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value[:40]) else value


def _visible(text: str) -> str:
    for character in text:
        if unicodedata.category(character) in INVISIBLE and character not in JOINERS:
            raise ValueError(f"the character U+{ord(character):04X} is not allowed; remove it")
    return text


def _visible_lines(text: str) -> str:
    _visible(text.replace("\n", "").replace("\t", ""))
    return text


def _hub_id(text: str) -> str:
    if any(part in text for part in NOT_IN_HUB_IDS) or text.endswith(".git"):
        raise ValueError("the Hub allows no --, no .. and no .git at the end")
    return text


def _not_periodic(name: str) -> str:
    if PERIODIC.search(name):
        raise ValueError("Snakemake takes no name that ends with 20 repetitions; choose another")
    return name


def _address(text: str) -> str:
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname or found.port == 0:
        raise ValueError("expected an address such as http://127.0.0.1:8000")
    return text


def _in_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _heads(heads: int) -> int:
    if heads % max(heads // 2, 1):
        raise ValueError("half of the heads are key-value heads; choose an even number")
    return heads


_HUB_WORD = "[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"

Whole = Annotated[int, BeforeValidator(_numeric)]
Real = Annotated[float, BeforeValidator(_numeric)]
Seed = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
"""NumPy takes 32 bits, and each process of a training adds its number."""
Steps = Annotated[Whole, Field(ge=1, le=10**6)]
Tokens = Annotated[Whole, Field(ge=1, le=2**20)]
Rows = Annotated[Whole, Field(ge=1, le=10**6)]
"""Prompts, responses or sequences that are held together."""
Gpus = Annotated[Whole, Field(ge=1, le=1024)]
OpenUnit = Annotated[Real, Field(gt=0, lt=1)]
Fraction = Annotated[Real, Field(gt=0, le=1)]
Temperature = Annotated[Real, Field(ge=0.01, le=100)]
"""Below 0.01 vLLM samples at 0.01, and far below float32 divides by zero."""
LearningRate = Annotated[Real, Field(ge=1e-12, le=1)]

NAME = r"^[A-Za-z0-9][A-Za-z0-9.+-]*$"
TITLE = r"^\S(.{0,38}\S)?$"
HUB_ID = f"^{_HUB_WORD}/{_HUB_WORD}$"
REVISION = r"^([0-9a-f]{40}|main)$"
SPLIT = r"^[A-Za-z0-9_.+:%\[\]-]{1,100}$"
COMMIT = r"^[0-9a-f]{40}$"
SHA256 = r"^[0-9a-f]{64}$"
REPOSITORY_FILE = r"^\w[\w.-]*(/\w[\w.-]*)*$"
PYTHON_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
REWARDS = ("boxed", "dapo")
"""Training rewards of our own: +1 for a right answer, -1 for any other response."""
_WORD = PYTHON_NAME.strip("^$")
REWARD = rf"^({'|'.join(REWARDS)}|{_WORD}(\.{_WORD})*:{_WORD})$"
IN_WORDS = {
    NAME: "letters, digits, dots, plus and minus signs, beginning with a letter or digit",
    TITLE: "1 to 40 characters in one line, without spaces at its ends",
    HUB_ID: "a repository of the Hub as owner/name",
    REVISION: "a commit, 40 hex digits, or main",
    SPLIT: "a split, such as train or train[:50%]",
    COMMIT: "a commit, 40 hex digits",
    SHA256: "a SHA-256, 64 hex digits",
    REPOSITORY_FILE: "a file's path in its repository, such as src/prompts.py",
    PYTHON_NAME: "a name of Python's",
    REWARD: f"{', '.join(REWARDS)}, or package.module:function",
}
"""What the patterns say, for errors."""

Name = Annotated[
    str, StringConstraints(pattern=NAME, max_length=120), AfterValidator(_not_periodic)
]
"""Becomes a directory and a wildcard; no underscore, which separates the words of rule names.

So short that a file system takes it with every prefix and suffix (255 bytes)."""
Line = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_visible)]
Title = Annotated[str, StringConstraints(pattern=TITLE), AfterValidator(_visible)]
HubId = Annotated[str, StringConstraints(pattern=HUB_ID), AfterValidator(_hub_id)]
Revision = Annotated[str, StringConstraints(pattern=REVISION)]
"""A commit; `main` where none is known yet, of which `check` and `doctor` warn."""
Sha256 = Annotated[str, StringConstraints(pattern=SHA256)]


class Strict(BaseModel):
    """Unknown keys are errors; NaN and infinity are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


EndTokens = Annotated[
    list[Line],
    Field(
        max_length=100,
        description="Tokens that end a response, in training and evaluation, besides the tokenizer's "
        "own, where it has them",
    ),
]


class HubModel(Strict):
    """A model on the Hugging Face Hub."""

    hub: HubId = Field(description="Repository id, such as Qwen/Qwen3-1.7B-Base")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")


class TinyModel(Strict):
    """A Qwen3 built from scratch and supervised on sloppy worked solutions of the tiny world."""

    builder: Literal["tiny-arithmetic"]
    hidden_size: Annotated[Whole, Field(ge=1, le=4096)] = Field(96, description="Width")
    layers: Annotated[Whole, Field(ge=1, le=128)] = 2
    heads: Annotated[Whole, Field(ge=1, le=128), AfterValidator(_heads)] = Field(
        4, description="Query heads of 32; half as many key-value heads"
    )
    intermediate_size: Annotated[Whole, Field(ge=1, le=16384)] = 320
    supervised_steps: Steps = Field(description="Updates of the supervised start")
    supervised_batch: Annotated[Whole, Field(ge=1, le=10**5)] = 96
    learning_rate: LearningRate = 3.0e-3
    seed: Seed = 0


class HubData(Strict):
    """Training prompts on the Hugging Face Hub."""

    hub: HubId
    revision: Revision
    split: Annotated[str, StringConstraints(pattern=SPLIT)] = "train"
    wrapper: Literal["strip", "keep"] = Field(
        "strip",
        description="DAPO-Math-17k's words around every question: taken off every row, or left on",
    )
    unique_prompts: Rows | None = Field(
        None, description="Different prompts that must be there, those with conflicting answers too"
    )
    sha256: Sha256 | None = Field(
        None, description="Of the prompts, as `stapo prompts` prints it; others are refused"
    )


class TinyData(Strict):
    """Training prompts of the tiny world, disjoint from its benchmarks by construction."""

    builder: Literal["tiny-arithmetic"]
    prompts: Rows = Field(description="Unique prompts")
    seed: Seed = 0


def _source(value: Any) -> str:
    has_hub = "hub" in value if isinstance(value, Mapping) else hasattr(value, "hub")
    return "hub" if has_hub else "builder"


Model = Annotated[
    Annotated[HubModel, Tag("hub")] | Annotated[TinyModel, Tag("builder")], Discriminator(_source)
]
Data = Annotated[
    Annotated[HubData, Tag("hub")] | Annotated[TinyData, Tag("builder")], Discriminator(_source)
]


Buffer = Annotated[
    Tokens | None,
    Field(
        description="Last tokens below the limit over which a penalty falls from 0 to -1; off if null"
    ),
]


class Training(Strict):
    """What all methods of a study share."""

    steps: Steps = Field(description="Optimiser steps, one per mini-batch")
    prompts_per_batch: Annotated[Whole, Field(ge=1, le=10**5)] = Field(
        description="Prompts per rollout"
    )
    group_size: Whole = Field(ge=2, le=1024, description="Responses per prompt, G")
    prompts_per_mini_batch: Annotated[Whole, Field(ge=1, le=10**5)] = Field(
        description="Prompts per optimiser step"
    )
    micro_batch_tokens: Whole = Field(
        ge=1,
        le=10**9,
        description="Token budget (prompt and response, padded) of one forward and backward pass",
    )
    learning_rate: LearningRate
    warmup_steps: Whole = Field(0, ge=0, le=10**6)
    weight_decay: Real = Field(0.0, ge=0, le=1)
    gradient_clip: Real = Field(1.0, ge=1e-6, le=1e9)
    max_prompt_tokens: Tokens
    max_response_tokens: Tokens
    temperature: Temperature = 1.0
    top_p: Fraction = 1.0
    advantage_epsilon: Real = Field(1.0e-6, ge=1e-12, le=1)
    statistics: Literal["behaviour", "current"] = Field(
        "behaviour",
        description="Policy whose probabilities and entropies select tokens",
    )
    rollouts: Literal["transformers", "vllm-colocate", "vllm-server"] = Field(
        "transformers", description="What generates the responses of the training"
    )
    instruction: Annotated[str, AfterValidator(_visible_lines)] = Field(
        "", max_length=10_000, description="Appended to every training prompt"
    )
    reward: Annotated[str, StringConstraints(pattern=REWARD, max_length=200)] = Field(
        "boxed",
        description="boxed (the last box), dapo (the last `Answer:`), or package.module:function",
    )
    reward_sha256: Sha256 | None = Field(
        None, description="Of the file that holds the function; asked for with one"
    )
    overlong_buffer_tokens: Buffer = None
    checkpoint_every: Steps = Field(
        1,
        description="Optimiser steps between step checkpoints; a kill loses at most so many steps",
    )
    keep_checkpoints: Steps = Field(2, description="Step checkpoints kept for resuming")
    evaluate_every: Steps | None = Field(
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
    vllm_tensor_parallel: Gpus = Field(1, description="GPUs of one colocated vLLM engine")
    vllm_evaluation_memory: OpenUnit = Field(
        0.9, description="Share of a GPU's memory for vLLM in evaluation"
    )
    data_parallel: Gpus = Field(1, description="Replicas of a checkpoint in evaluation")
    vllm_server: Annotated[Line, AfterValidator(_address)] = Field(
        "http://127.0.0.1:8000", description="Address of `trl vllm-serve`, for vllm-server"
    )


class AllMethods(Strict):
    """Deviations from the methods of `stapo.methods` that all methods of a study share."""

    clip_low: Real | None = Field(None, gt=0, le=1)
    clip_high: Real | None = Field(None, gt=0, le=1000)
    aggregation: AggregationName | None = None
    kl_coefficient: Real | None = Field(None, ge=0, le=1000)
    dual_clip: Real | None = Field(None, gt=1, le=1e6)


class MethodTraining(Strict):
    """What one method is trained with where that is not what the study says for all."""

    prompts_per_batch: Annotated[Whole, Field(ge=1, le=10**5)] | None = None
    group_size: Annotated[Whole, Field(ge=2, le=1024)] | None = None
    prompts_per_mini_batch: Annotated[Whole, Field(ge=1, le=10**5)] | None = None
    overlong_buffer_tokens: Buffer = None


class MethodSettings(AllMethods):
    """Deviations from a method of `stapo.methods`; with `base`, a variant under a name of its own."""

    base: Name | None = Field(
        None, description="Method or variant to start from, as this study has it"
    )
    title: Title | None = None
    training: MethodTraining | None = None
    tau_p: OpenUnit | None = Field(None, description="Probability below which a token is rare")
    quantile: OpenUnit | None = Field(None, description="Of the entropies, for the threshold")
    scope: Literal["candidates", "all"] | None = None
    fraction: Fraction | None = Field(None, description="Share of tokens that 20-Entropy keeps")


class Decoding(Strict):
    """How responses are sampled in evaluation."""

    temperature: Temperature
    top_p: Fraction
    top_k: Whole = Field(0, ge=0, le=10**6, description="0: off")


class BenchmarkSettings(Strict):
    """What a study says of a benchmark; the rest stands in `benchmarks/`."""

    samples: Whole = Field(ge=1, le=10**5, description="Responses per problem, N of avg@N")


class Template(Strict):
    """The wording of a verifier's prompt: a text in a Python file on GitHub, which is read and never run.

    The text has the fields of `str.format`: question, gold_answer and llm_response, each once.
    """

    github: HubId = Field(description="Repository, as owner/name")
    revision: Annotated[str, StringConstraints(pattern=COMMIT)]
    file: Annotated[str, StringConstraints(pattern=REPOSITORY_FILE, max_length=200)]
    name: Annotated[str, StringConstraints(pattern=PYTHON_NAME, max_length=100)] = Field(
        description="Of the variable that holds the text"
    )
    sha256: Sha256 = Field(description="Of the file")


COMPASS_TEMPLATE = Template(
    github="open-compass/CompassVerifier",
    revision="2d7cba6df0b21f9c6121786ac1e5770c68473598",
    file="src/prompts.py",
    name="CV_PROMPT",
    sha256="6a4bde9a47fc670ab7a5d93b9c7e1d5aa9bf13c00fedf05cc2a87ac03811411a",
)
"""What CompassVerifier's authors publish, and JustRL's evaluation asks with."""


class Verifier(Strict):
    """A model that judges the answers which the rules reject; the evaluation's backend runs it."""

    hub: HubId = Field("opencompass/CompassVerifier-3B", description="Any causal language model")
    revision: Revision = Field(description="Commit of the repository, 40 hex digits, or main")
    template: Template | Literal["own"] = Field(
        COMPASS_TEMPLATE, description="Wording of the prompt; own: that of this suite"
    )
    batch_size: Rows = Field(32, description="Prompts judged together; no influence on verdicts")
    max_prompt_tokens: Tokens = Field(
        30720, description="A longer prompt loses the front of the response"
    )
    max_response_tokens: Tokens = Field(
        2048, description="With the prompt it fills CompassVerifier's context of 32,768"
    )


class Evaluation(Strict):
    """How checkpoints are evaluated."""

    backend: Literal["hf", "vllm"] = Field("hf", description="Transformers, or vLLM")
    batch_size: Rows = Field(
        description="Responses generated together; a kill loses at most so many"
    )
    max_response_tokens: Tokens
    seed: Seed = 1234
    verifier: Verifier | None = Field(None, description="Off by default")
    select: Literal["last", "development"] | Steps = Field(
        "last", description="Which checkpoint tables show: last, of that step, best on development"
    )
    development: list[Name] = Field(
        [],
        max_length=1000,
        description="Benchmarks that only choose checkpoints; no table shows them",
    )
    verdict: Literal["rule", "verifier"] = Field(
        "rule", description="What tables count: the rules alone, or also what the verifier accepts"
    )


class Compare(Strict):
    """Which methods the tables compare with which."""

    target: (
        Annotated[
            list[Name],
            Field(min_length=1, max_length=1000),
            BeforeValidator(_in_list, json_schema_input_type=Name | list[Name]),
        ]
        | None
    ) = Field(None, description="Method or methods of run.methods; default: stapo and stapo-v2")
    baselines: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="Methods of run.methods; default: grpo, 20-entropy and justrl"
    )


class Run(Strict):
    """Which cells of the study are run."""

    sizes: list[Name] = Field(min_length=1, max_length=1000)
    methods: list[Name] = Field(min_length=1, max_length=1000)
    seeds: list[Seed] = Field(min_length=1, max_length=1000)
    decodings: list[Name] = Field(min_length=1, max_length=1000)
    benchmarks: list[Name] = Field(min_length=1, max_length=1000)
