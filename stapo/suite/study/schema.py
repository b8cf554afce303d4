"""The sections of a study file except models and data: every setting, its type, range and meaning."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from stapo.suite.records.arms import ARMS, CONTROLS, NOTHING, SILENCED
from stapo.suite.study.fields import (
    Buffer,
    Domains,
    Fraction,
    Gpus,
    GroupSize,
    HubId,
    Instruction,
    LearningRate,
    LocalFile,
    Name,
    Names,
    OpenUnit,
    Prompts,
    Reader,
    Revision,
    Rows,
    Seed,
    Sha256,
    Split,
    Steps,
    Strict,
    Temperature,
    Tokens,
    checksum,
    in_list,
    off,
    unit,
)
from stapo.suite.study.sources import HubModel


class TrainingSettings(Strict):
    """Training settings that all methods of a study share."""

    keep_checkpoints: ClassVar[int] = 2
    """Step checkpoints kept for resuming."""
    steps: Steps = Field(description="Optimiser steps, one per mini-batch")
    prompts_per_batch: Prompts = Field(description="Prompts per rollout")
    group_size: GroupSize = Field(description="Responses per prompt, G")
    prompts_per_mini_batch: Prompts = Field(description="Prompts per optimiser step")
    micro_batch_tokens: Annotated[int, unit("tokens")] = Field(
        ge=1, le=10**9, description="Tokens of one pass; without a GPU, with their padding"
    )
    learning_rate: LearningRate = Field(description="Learning rate of AdamW after the warm-up")
    warmup_steps: Annotated[int, unit("optimiser steps")] = Field(
        0, ge=0, le=10**6, description="Steps in which the learning rate rises from 0"
    )
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of AdamW")
    decayed: Literal["matrices", "all"] = Field(
        "matrices",
        exclude_if=lambda value: value == "matrices",
        description="Parameters with weight decay: without norms as in Transformers, or all as in veRL",
    )
    gradient_clip: float = Field(
        1.0, ge=1e-6, le=1e9, description="Norm to which a larger gradient is scaled down"
    )
    max_prompt_tokens: Tokens = Field(
        description="Longest prompt with its instruction; longer ones are left out"
    )
    max_response_tokens: Tokens = Field(description="Length at which a response is cut")
    temperature: Temperature = Field(1.0, description="Temperature of the rollouts")
    top_p: Fraction = Field(1.0, description="Nucleus of the rollouts; 1: off")
    advantage_epsilon: float = Field(
        1.0e-6, ge=1e-12, le=1, description="Added to the standard deviation of a group's rewards"
    )
    statistics: Literal["behaviour", "current"] = Field(
        "behaviour", description="Policy whose probabilities and entropies select tokens"
    )
    rollouts: Literal["transformers", "transformers-bfloat16", "vllm-colocate"] = Field(
        "transformers",
        description="Engine that generates the responses of the training; transformers-bfloat16 rounds a "
        "copy of the weights, which is faster on CPUs with bfloat16 instructions",
    )
    instruction: Instruction = Field("", description="Appended to every training prompt")
    reward: Reader = Field(
        "boxed",
        description="What the answer of a response is: boxed (last box, compared as a string), last_number, "
        "whole, {after: TEXT}; for tasks of reasoning-gym, which judge it, reasoning_gym (in <answer> tags) "
        "or {reasoning_gym: last_number or whole}; python_function (last ```python block, judged by tests in "
        "a sandbox); or FILE.py:function, a reward of your own",
    )
    reward_sha256: Sha256 | None = checksum("its file")
    overlong_buffer_tokens: Buffer = None
    token_records_mb: Annotated[int, unit("MB")] = Field(
        50,
        ge=0,
        le=1000,
        description="Size of a training's token records, about; 0 records no tokens",
    )
    checkpoint_every: Steps | None = Field(
        None,
        description="Steps between step checkpoints; a kill loses at most these; default: about 3 minutes",
    )
    evaluate_every: Steps | None = Field(
        None, description="Steps between weights that are kept and evaluated, besides the last"
    )

    @property
    def use_vllm(self) -> bool:
        """Return whether vLLM generates the responses of the training."""
        return self.rollouts == "vllm-colocate"


class ModelEngine(Strict):
    """Settings of the colocated vLLM for one model that differ from those of the study."""

    vllm_gpu_memory: OpenUnit | None = Field(
        None, description="Share of a GPU's memory for this model; default: that of the study"
    )
    vllm_tensor_parallel: Gpus | None = Field(
        None, description="GPUs of one engine for this model; default: those of the study"
    )


class EngineSettings(Strict):
    """Settings of the engines on the available machines, which do not determine results."""

    tracker: Literal["tensorboard", "wandb", "trackio", "none"] = Field(
        "tensorboard", description="Tracker of a running training, besides metrics.jsonl"
    )
    vllm_gpu_memory: OpenUnit = Field(
        0.3, description="Share of a GPU's memory for colocated vLLM, which sleeps during updates"
    )
    vllm_tensor_parallel: Gpus = Field(1, description="GPUs of one colocated vLLM engine")
    vllm_evaluation_memory: OpenUnit = Field(
        0.9, description="Share of a GPU's memory for vLLM in evaluation"
    )
    models: dict[Name, ModelEngine] = Field(
        {}, description="Settings of single models in training, before those above"
    )


class Decoding(Strict):
    """How responses are sampled in evaluation."""

    temperature: Temperature = Field(description="Divides the logits before sampling")
    top_p: Fraction = Field(description="Nucleus: share of the probability that is kept; 1: off")
    top_k: Annotated[int, unit("tokens")] = Field(
        0, ge=0, le=10**6, description="Most likely tokens that are kept; 0: off"
    )

    @property
    def title(self) -> str:
        """Return it as people say it."""
        limit = f", top-k = {self.top_k}" if self.top_k else ""
        return f"T = {self.temperature}, top-p = {self.top_p}{limit}"


OF_HUB = ("revision", "split", "subset")
"""Settings of a benchmark that say which part of its data set on the Hub is meant; the last is optional."""


class BenchmarkSettings(Strict):
    """Settings of a benchmark in a study; the rest is in `benchmarks/`, or in a file of the study's own."""

    samples: Annotated[int, unit("responses")] = Field(
        ge=1, le=10**5, description="Responses per problem, N of avg@N"
    )
    file: LocalFile | None = off(
        "JSON lines with question and answer; a relative path means the study's folder"
    )
    hub: HubId | None = off("Data set on the Hub, such as HuggingFaceH4/MATH-500")
    revision: Revision | None = off("Of `hub`, the commit, 40 hex digits, or main")
    subset: Name | None = off("Of `hub`, the subset, such as main; default: its only one")
    split: Split | None = off("Of `hub`, the split, such as test")
    reasoning_gym: Domains | None = off("Tasks of reasoning-gym, each with its settings")
    rows: Annotated[Rows, unit("rows")] | None = off(
        "Of a benchmark of `benchmarks/`, how many problems are asked, from the first, default: all; of a "
        "`file` or `hub`, the expected number; of `reasoning_gym`, how many are made"
    )
    sha256: Sha256 | None = off(
        "Expected SHA-256 of the problems in `file`, as printed by `stapo check`, or of `hub`, as printed by "
        "`stapo fetch`; default: any"
    )
    answer: Reader | None = off(
        "How answers are read: boxed, last_number, whole, {after: TEXT}, python_function or "
        "FILE.py:function; default: as the task file says, with a `file` as the reward of the training "
        "reads them"
    )
    answer_sha256: Sha256 | None = off(
        "Expected SHA-256 of the file of `answer`, as printed by `stapo check`; default: any"
    )
    instruction: Instruction | None = off(
        "Appended to every question; default: as the task file says, of other benchmarks training.instruction"
    )

    @property
    def is_own(self) -> bool:
        """Return whether it is defined by the study alone, and not in `benchmarks/`."""
        return bool(self.sources)

    @property
    def sources(self) -> list[str]:
        """Return the settings that say where its problems come from; none for one of `benchmarks/`."""
        return [key for key in ("file", "hub", "reasoning_gym") if getattr(self, key)]


class Verifier(HubModel):
    """A model that judges answers that the rules reject; it runs on the backend of the evaluation."""

    batch_size: ClassVar[int] = 32
    """Prompts judged together; no influence on verdicts."""
    max_prompt_tokens: ClassVar[int] = 30720
    """Maximum prompt length; the start of the response is removed to fit."""
    max_response_tokens: ClassVar[int] = 2048
    """With the prompt's maximum it fills CompassVerifier's context of 32,768."""
    template: ClassVar[dict[str, str]] = {
        "github": "open-compass/CompassVerifier",
        "revision": "2d7cba6df0b21f9c6121786ac1e5770c68473598",
        "file": "src/prompts.py",
        "name": "CV_PROMPT",
        "sha256": "6a4bde9a47fc670ab7a5d93b9c7e1d5aa9bf13c00fedf05cc2a87ac03811411a",
    }
    """Prompt of CompassVerifier's authors, also JustRL's: a string in a Python file on GitHub."""
    hub: HubId = Field("opencompass/CompassVerifier-3B", description="Any causal language model")


class Curve(Strict):
    """Points of the accuracy curve between the checkpoints that are evaluated on all benchmarks."""

    every: Steps = Field(description="Optimiser steps between weights that are kept for the curve")
    benchmarks: Names = Field(description="Benchmarks on which these weights are evaluated")
    decoding: Name = Field(description="Decoding with which these weights are evaluated")


class Evaluation(Strict):
    """How checkpoints are evaluated."""

    backend: Literal["hf", "vllm"] = Field("hf", description="Transformers, or vLLM")
    batch_size: Annotated[Rows, unit("responses")] = Field(
        description="Responses that Transformers generates together; a kill loses at most these"
    )
    max_response_tokens: Tokens = Field(description="Length at which a response is cut")
    seed: Seed = Field(1234, description="Seed of the responses")
    verifier: Verifier | None = Field(None, description="Off by default")
    curve: Curve | None = Field(
        None, description="More points for the figure of accuracy and the endpoint `curve`"
    )
    verdict: Literal["rule", "verifier"] = Field(
        "rule", description="Responses counted as correct: by the rules, or also by the verifier"
    )
    devices: Literal["same", "mixed"] = Field(
        "same",
        description="Responses from one type of CPU or GPU, or from several, which the tables name",
    )


Endpoint = Literal[
    "reward-last-half", "reward", "accuracy", "accuracy-last-decoding", "curve", "entropy", "until-collapse"
]  # fmt: skip
"""What a training is judged by, one number: see `stapo.suite.analysis.tables.endpoints`."""


class Compare(Strict):
    """Targets and baselines of the comparisons in the tables."""

    target: (
        Annotated[Names, BeforeValidator(in_list, json_schema_input_type=Name | list[Name])] | None
    ) = Field(None, description="Method or methods of run.methods; default: stapo and stapo-v2")
    baselines: Names | None = Field(
        None, description="Methods of run.methods; default: grpo, 20-entropy and justrl"
    )
    endpoint: Endpoint | None = Field(
        None,
        description="Primary endpoint, named before the study runs; default: none, all are secondary",
    )


class Run(Strict):
    """Models, methods, seeds, decodings and benchmarks that are run."""

    models: Names = Field(description="Names of base models in `models`")
    methods: list[Name] = Field(
        max_length=1000, description="Methods, or variants in `methods`; none: base models alone"
    )
    seeds: list[Seed] = Field(min_length=1, max_length=1000, description="Training seeds")
    decodings: Names = Field(description="Names of decodings in `decodings`")
    benchmarks: Names = Field(description="Benchmarks in the tables, from `benchmarks`")
    algorithms: Literal["fastest", "deterministic"] = Field(
        "fastest",
        exclude_if=lambda value: value == "fastest",
        description="Those of PyTorch and vLLM, in training and evaluation; deterministic: with the same "
        "bits again on the same machine, also on a GPU",
    )

    def computing(self) -> dict[str, Any]:
        """Return the settings that determine the results of every stage that computes with a model."""
        return self.model_dump(include={"algorithms"})


Control = Literal[
    "random_candidates", "random_positive", "high_entropy",
    "rare_negative", "mirror", "likely_negative", "random",
]  # fmt: skip
"""Arms of `stapo.suite.records.arms` that a study chooses."""


class Interventions(Strict):
    """Single updates of checkpoints with and without silencing, by `stapo run intervene`."""

    seed: ClassVar[int] = 0
    """Seed of rollouts and prompts."""
    checkpoints: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=400)]],
        Field(max_length=1000),
    ] = Field(
        [], description="model/base, model/method/seedK or model/method/seedK/stepN; default: none"
    )
    method: Name = Field("stapo", description="Method whose selection silences tokens")
    repetitions: Annotated[int, Field(ge=2, le=1000), unit("rollouts")] = Field(
        8, description="Rollouts with other prompts and seeds, with one update of each arm"
    )
    prompts: Annotated[Rows, unit("prompts")] = Field(
        32, description="Prompts of a repetition on which entropy and reward are measured"
    )
    rollout_prompts: Annotated[Rows, unit("prompts")] | None = off(
        "Prompts of the rollout of an update; default: those of a mini-batch"
    )
    gradient_tokens: Annotated[int, Field(ge=1, le=1000), unit("tokens")] | None = off(
        "Tokens of each quadrant of a rollout whose gradients at all weights are computed, each with a "
        "backward pass; default: none"
    )
    controls: Annotated[list[Control], Field(min_length=1, max_length=7)] = Field(
        ["random_candidates", "random_positive", "high_entropy"],
        exclude_if=lambda value: value == [*CONTROLS],
        description="What else updates silence, as many tokens as S2T",
    )
    methods: Annotated[list[Name], Field(max_length=100)] = Field(
        [],
        exclude_if=lambda value: not value,
        description="Methods that use the same whole rollout, in as many updates as in a training; they are "
        "compared with the first",
    )

    def updates(self, mini_batch: int) -> int:
        """Return the number of updates by a whole method with one rollout, of so many prompts each."""
        return (self.rollout_prompts or mini_batch) // mini_batch

    @property
    def arms(self) -> list[str]:
        """All arms, in the order of `ARMS`."""
        return [arm for arm in ARMS if arm in {NOTHING, SILENCED, *self.controls}]
