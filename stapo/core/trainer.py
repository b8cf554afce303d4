"""StapoTrainer: TRL's GRPOTrainer with the update of this project.

One optimiser step uses one mini-batch, which contains all responses of its prompts. Old log-probs and
entropies are computed once after the rollout, without gradient. Rollouts, data loading, optimiser and
sharding are those of TRL and Accelerate; the update is `stapo.core.update`.
"""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from math import nan
from time import perf_counter
from typing import Any, Protocol

import torch
from accelerate.utils import set_seed
from torch import Tensor
from transformers import GenerationConfig
from trl.trainer.utils import split_tensor_dict

from stapo.core.checkpoints import ResumableTrainer
from stapo.core.config import StapoConfig, check
from stapo.core.decoding import decode, has_full_attention
from stapo.core.files import fingerprint
from stapo.core.forward import PACKED, Sequences, packed_forward, padded_forward
from stapo.core.loss import TokenTables
from stapo.core.methods import METHODS, Method
from stapo.core.minibatch import Layout, MiniBatch, micro_batches
from stapo.core.objective import group_advantages
from stapo.core.objective.advantages import ADVANTAGES
from stapo.core.objective.penalties import PENALTIES
from stapo.core.ranks import (
    AcceleratorRanks,
    reference_model,
    reshard,
    sum_in_float32,
    whole_rollout,
)
from stapo.core.shared_prompts import SHARED, shared_forward
from stapo.core.step_record import ROLLOUT, UPDATE, StepRecord, as_line
from stapo.core.update import Forward, accumulate_gradient, next_state, without_gradient

TAKEN = (
    "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps",
    "old_entropies", "ref_per_token_logps", "sampling_per_token_logps", "proxy_logps",
)  # fmt: skip
"""Tensors of TRL's rollout that are used."""
FORWARD = {"padded": padded_forward, "packed": packed_forward, "shared": shared_forward}
REPLACED = {"advantages", "num_items_in_batch", "importance_sampling_ratio"}
"""Those of TRL's loss, instead of which there are ours."""


class Recorder(Protocol):
    """Records tokens of one mini-batch while its update is computed."""

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the forward pass of the update does, in whose place it is called."""

    def selected(self, logps: Tensor, entropies: Tensor, tables: TokenTables) -> None:
        """Take the selection, as `accumulate_gradient` passes it."""

    def line(self, ranks: AcceleratorRanks) -> dict[str, Any]:
        """Return the record, the same on every rank; all ranks call this after the last pass."""


RecorderFactory = Callable[[Any, Forward, MiniBatch, Sequences, Tensor], Recorder]
"""From a StapoTrainer, the forward pass, the mini-batch, its sequences and (B,) rewards to a recorder."""


class StapoTrainer(ResumableTrainer):
    """Trains with any method of `stapo.core.methods`; otherwise used like TRL's GRPOTrainer.

    Rollouts are sampled by `args` alone. Of the model's generation configuration only the end tokens are
    used; TRL would also take from it what `args` cannot say, such as `suppress_tokens`.

    `method` overrides `args.method`: one with other settings, or of one's own. Candidates are counted by
    `tau_p`, as `update` does. On the main process,
    `on_metrics` is called with the record of every optimiser step, and `on_tokens` before that with the
    record of the step's tokens, if there is a `recorder` of tokens.

    Raises:
        ValueError: the update does not support the settings.
    """

    rollout_number: int | None = None
    """What determines the random numbers of responses, with the seed; None: the step."""

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: StapoConfig,
        *others: Any,
        method: Method | None = None,
        tau_p: float | None = None,
        on_metrics: Callable[[StepRecord], None] = lambda _: None,
        on_tokens: Callable[[dict[str, Any]], None] = lambda _: None,
        recorder: RecorderFactory | None = None,
        **named: Any,
    ) -> None:
        if not isinstance(args, StapoConfig):
            raise TypeError(f"args: expected a StapoConfig, found {type(args).__name__}")
        check(args)  # Again: they may have been changed.
        self.method, self.tau_p = method or METHODS[args.method], tau_p
        self.on_metrics, self.on_tokens = on_metrics, on_tokens
        self.recorder = recorder
        if isinstance(model, str):
            # TRL sets `trust_remote_code` itself, but would otherwise also read pickled weights.
            args.model_init_kwargs = {"use_safetensors": True, **(args.model_init_kwargs or {})}
        self._behaviour_entropies: Any = None  # Set during TRL's rollout, like the next.
        self._rollout_rewards: Any = None
        self._sampling_logps: Any = None  # (b, longest T), of a rounded model that samples.
        self._lengths: Any = None  # (B,), tokens of the responses.
        self._seconds: dict[str, float] = {}
        self._record: StepRecord | None = None
        self._tokens: dict[str, Any] | None = None
        super().__init__(model, reward_funcs, args, *others, **named)
        self._lay_out()  # The reference model has the same attention.
        ends = {"eos_token_id": self.eos_token_ids, "pad_token_id": self._tokenizer.pad_token_id}
        self.model.generation_config = GenerationConfig(**ends)
        # TRL's rollout computes the reference's log-probs if beta is not 0. TRL's loss is not used.
        # In args it stays 0: TRL would load and shard a reference model in its own way.
        self.beta = self.method.kl_coefficient
        if self.beta:
            head = {name: getattr(args, name) for name in ("temperature", "cast_lm_head_to_fp32")}
            self.ref_model = reference_model(self.model, self.accelerator, **head)
        ours = not (self.use_vllm or self.is_fsdp_enabled) and has_full_attention(self.model)
        if args.bfloat16_rollouts and not ours:
            cause = "needs a model with full attention that generates by itself"
            raise ValueError(f"bfloat16_rollouts: {cause}, without vLLM and FSDP; leave it out")
        if ours:
            self._rounded = _rounded(self.model) if args.bfloat16_rollouts else None
            self.model.generate = partial(self._decoded, self.model.generate)
        if self.use_vllm and self.vllm_mode == "colocate":
            engine = self.vllm_generation.llm
            engine.generate = seeded(engine.generate, self._response_seeds)
            set_seed(args.seed, device_specific=True)  # The engine has set that of the process.

    def _lay_out(self) -> None:
        """Choose how the sequences of a pass are laid out, and set the attention of the model."""
        args, can = self.args, has_full_attention(self.model)
        on_cpu = args.device.type == "cpu"
        if args.packed is None:
            args.packed = can and not (on_cpu or args.shared_prompts)
        if args.shared_prompts is None:
            args.shared_prompts = can and on_cpu and not args.packed
        if (args.packed or args.shared_prompts) and not can:
            cause = "the model's attention does not know sequences"
            raise ValueError(f"packed, shared_prompts: {cause}; leave both out")
        if self.layout != "padded":
            self.model.set_attn_implementation(PACKED if args.packed else SHARED)

    @property
    def layout(self) -> Layout:
        """How the sequences of a pass are laid out."""
        if self.args.packed:
            return "packed"
        return "shared" if self.args.shared_prompts else "padded"

    def create_accelerator_and_postprocess(self) -> None:
        """Let the Accelerator sum in float32."""
        super().create_accelerator_and_postprocess()
        sum_in_float32(self.accelerator)

    # Rollout

    def _decoded(self, generate: Callable[..., Tensor], input_ids: Tensor, **named: Any) -> Tensor:
        """Return prompts and responses (b, P + T) of this rank, by our loop."""
        loop = partial(decode, seeds=self._response_seeds(len(input_ids)))
        if self._rounded is not None:
            with torch.no_grad():
                for rounded, parameter in zip(
                    self._rounded.parameters(), self.model.parameters(), strict=True
                ):
                    rounded.copy_(parameter)
            generate = self._rounded.generate
            size = len(input_ids), self.args.max_completion_length
            self._sampling_logps = torch.full(size, nan, device=input_ids.device)
            loop = partial(loop, logps=self._sampling_logps)
        return generate(input_ids=input_ids, custom_generate=loop, **named)

    def _response_seeds(self, number: int) -> list[int]:
        """Return the seeds of the responses that this rank, or its vLLM engine, generates next."""
        # The ranks of one engine generate the responses of all of them.
        engine = self.accelerator.process_index // self.vllm_tensor_parallel_size
        rows = range(engine * number, (engine + 1) * number)
        step = self.state.global_step if self.rollout_number is None else self.rollout_number
        return [response_seed(self.args.seed, step, row) for row in rows]

    def respond(self, prompts: Sequence[dict[str, Any]], number: int) -> dict[str, Tensor]:
        """Return a rollout of the current weights, outside of a training.

        With the seed, `number` determines the random numbers. Each prompt is a row of the data set.
        """
        self.rollout_number = number
        self._last_loaded_step = -1  # A colocated vLLM gets the weights.
        torch.manual_seed(response_seed(self.args.seed, number, 0))
        inputs = [dict(row) for row in prompts for _ in range(self.num_generations)]
        try:
            return self._generate_and_score_completions(inputs)
        finally:
            self.rollout_number = None

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Tensor]:
        """Return the next mini-batch, with all responses of its prompts, in data order; TRL would shuffle."""
        slices = self.args.steps_per_generation
        if self._step % slices == 0 or self._buffered_inputs is None:
            rollout = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(rollout, slices)
        batch: dict[str, Tensor] = self._buffered_inputs[self._step % slices]
        return batch

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Return the rollout of all ranks, with behaviour entropies, rewards and our advantages."""
        self._behaviour_entropies = None
        start = perf_counter()
        output: dict[str, Tensor] = super()._generate_and_score_completions(inputs)
        if ignored := ", ".join(sorted(output.keys() - {*TAKEN, *REPLACED})):
            cause = "no update with tools, environments or images"
            raise ValueError(f"{cause}; the rollout has {ignored}")
        if self._behaviour_entropies is None:
            # With a single mini-batch per rollout, TRL does not compute the old log-probs.
            output["old_per_token_logps"], self._behaviour_entropies = self.scored(
                self.model, sequences_of(output)
            )
        output["old_entropies"] = self._behaviour_entropies
        if self.args.bfloat16_rollouts:
            width = output["completion_ids"].shape[1]
            output["sampling_per_token_logps"] = self._sampling_logps[:, :width]
        if PENALTIES[self.method.penalty].against_proxy:
            output["proxy_logps"] = self.proxy_of(self.method, output)
        output = whole_rollout(
            self.accelerator,
            {name: output[name] for name in TAKEN if name in output},
            self._tokenizer.pad_token_id,
        )
        output["rewards"] = self._rollout_rewards
        output["response_lengths"] = self._lengths
        self._seconds[ROLLOUT] = perf_counter() - start
        return output | self.method_advantages(self.method, self._rollout_rewards)

    def method_advantages(self, method: Method, rewards: Tensor) -> dict[str, Tensor]:
        """Return the advantages of a method, and the usual ones if these are others."""
        arguments = rewards, self.num_generations, self.args.advantage_epsilon
        usual, name = group_advantages(*arguments), method.advantage
        if name == "group":
            return {"advantages": usual}
        advantages = ADVANTAGES[name](*arguments, **method.arguments_of("advantage"))
        return {"advantages": advantages, "group_advantages": usual}

    def proxy_of(self, method: Method, rollout: dict[str, Tensor]) -> Tensor:
        """Return (b, T) log-probs of the proxy that the penalty of a method needs."""
        min_p = method.arguments_of("penalty")["min_p"]
        return self.scored(self.model, sequences_of(rollout), min_p)[0]

    def _generate(self, prompts: list[Any]) -> Any:
        start = perf_counter()
        generated = super()._generate(prompts)
        self._seconds["generate"] = perf_counter() - start
        # With `mask_truncated_completions`, the mask of a truncated response is empty.
        lengths = [len(ids) for ids in generated[1]]
        self._lengths = self.accelerator.gather(
            torch.tensor(lengths, device=self.accelerator.device)
        )
        return generated

    def _calculate_rewards(self, *args: Any) -> Tensor:
        per_function: Tensor = super()._calculate_rewards(*args)
        weighted = per_function * self.reward_weights.to(per_function.device)
        self._rollout_rewards = weighted.nansum(dim=1)
        return per_function

    def scored(
        self, model: Any, sequences: Sequences, min_p: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs (with `min_p`, of a proxy) and entropies (b, T) of this rank's responses."""
        mask = sequences.mask[:, -sequences.width :]
        lengths = sequences.mask[:, : -sequences.width].sum(dim=1), mask.sum(dim=1)
        rows = torch.arange(len(mask), device=mask.device)
        budget = self.args.micro_batch_tokens
        parts = micro_batches(lengths, rows, budget, self.layout, self.num_generations)
        parts += [rows[:0]] * (AcceleratorRanks(self.accelerator).largest(len(parts)) - len(parts))
        forward = partial(self.forward, model, sequences, min_p=min_p)
        return without_gradient(forward, parts, mask)

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: Tensor, mask: Tensor, width: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor, None]:
        """Return log-probs and entropies (b, T) of this rank's rows, for policy or reference model."""
        logps, entropies = self.scored(model, Sequences(ids, mask, width))
        if model is self.model:
            self._behaviour_entropies = entropies
        return logps, entropies, None

    def forward(
        self, model: Any, sequences: Sequences, rows: Tensor, min_p: float | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probs and entropies of some rows, (max(R, 1), longest response of these rows)."""
        with self.accelerator.autocast():
            return FORWARD[self.layout](model, sequences.take(rows), min_p)

    # Update

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Run forward and backward passes of one mini-batch; the Trainer then clips and updates."""
        model.train()
        self._seconds = {}
        mini_batch = self._prepare_inputs(inputs)
        start = perf_counter()
        loss = self._accumulate_gradients(model, mini_batch)
        self._seconds[UPDATE] = perf_counter() - start
        self._step += 1
        self._require_finite("loss", loss)
        return loss

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Return the parameters with weight decay: without norms as in Transformers, or all as in veRL."""
        if self.args.decayed == "all":
            return [name for name, _ in model.named_parameters()]
        names: list[str] = super().get_decay_parameter_names(model)
        return names

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        self._require_finite("gradient norm", norm)
        return norm

    def _require_finite(self, what: str, value: Any) -> None:
        """Stop before the weights change if a number is not finite."""
        if not torch.isfinite(torch.as_tensor(value)):
            consequence = "the weights were not changed, and the last checkpoint can be used"
            step = self.state.global_step + 1
            raise FloatingPointError(f"step {step}: the {what} is {float(value)}; {consequence}")

    def _accumulate_gradients(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Accumulate the gradient of a mini-batch, store the record of the update, and return the loss.

        All are the same on every rank.
        """
        batch = mini_batch(inputs)
        seed = self.args.seed * 1_000_003 + self.state.global_step
        # In the first mini-batch of a rollout, the current policy is the behaviour policy.
        first = self._step % self.args.steps_per_generation == 0
        sequences, rewards = sequences_of(inputs), inputs["rewards"]
        forward = partial(self.forward, model, sequences)
        ranks = AcceleratorRanks(self.accelerator, model)
        tokens = None
        if self.recorder is not None:
            tokens = self.recorder(self, forward, batch, sequences, rewards)
        loss, record = accumulate_gradient(
            tokens.forward if tokens else forward,
            batch,
            self.method,
            ranks,
            group_size=self.num_generations,
            micro_batch_tokens=self.args.micro_batch_tokens,
            layout=self.layout,
            statistics="behaviour" if first else self.args.statistics,
            seed=seed,
            step=self.state.global_step + 1,
            selected=tokens.selected if tokens else None,
            state=self.penalty_state,
            max_response_tokens=self.max_completion_length,
            tau_p=self.tau_p,
        )
        self.penalty_state = next_state(self.method, self.penalty_state, record)
        if tokens is not None:
            self._tokens = tokens.line(ranks)
        reshard(model)
        for parameter in model.parameters():
            # The optimiser would skip a parameter without gradient, but Adam's moments must decay.
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        ends = torch.tensor(self.eos_token_ids, device=batch.mask.device)
        ended = torch.isin(inputs["completion_ids"], ends) & batch.mask
        self._record = replace(
            record,
            reward=rewards.mean().item(),
            truncated_fraction=1 - ended.any(dim=1).float().mean().item(),
        )
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the Trainer's values to the record of a step, pass it to `on_metrics` and log it."""
        if self._record is not None and "grad_norm" in logs:
            record = replace(
                self._record,
                step=self.state.global_step,
                gradient_norm=float(logs["grad_norm"]),
                learning_rate=float(logs["learning_rate"]),
                seconds=dict(self._seconds),
            )
            tokens, self._record, self._tokens = self._tokens, None, None
            if self.accelerator.is_main_process:
                if tokens is not None:
                    self.on_tokens(tokens)
                self.on_metrics(record)
            for name, value in as_line(record).items():
                if name != "step" and not isinstance(value, dict):
                    logs[f"stapo/{name}"] = value
        super().log(logs, start_time)


def _rounded(model: Any) -> Any:
    """Return a copy of a model with bfloat16 parameters; the frequencies of its positions stay exact."""
    rounded = deepcopy(model)
    vars(rounded).pop("forward", None)  # That of TRL's fused head is bound to the model itself.
    for parameter in rounded.parameters():
        parameter.data = parameter.data.bfloat16()
    return rounded


def sequences_of(inputs: dict[str, Tensor]) -> Sequences:
    """Return prompts and responses of tensors with TRL's names."""
    ids, mask = (
        torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], dim=1)
        for name in ("ids", "mask")
    )
    return Sequences(ids, mask, inputs["completion_ids"].shape[1])


def mini_batch(inputs: dict[str, Tensor]) -> MiniBatch:
    """Return the input of the update for tensors with TRL's names."""
    return MiniBatch(
        mask=inputs["completion_mask"].bool(),
        advantages=inputs["advantages"],
        old_logps=inputs["old_per_token_logps"],
        rollout_logps=inputs.get("sampling_per_token_logps"),
        old_entropies=inputs["old_entropies"],
        ref_logps=inputs.get("ref_per_token_logps"),
        proxy_logps=inputs.get("proxy_logps"),
        group_advantages=inputs.get("group_advantages"),
        prompt_lengths=inputs["prompt_mask"].sum(dim=1),
        response_lengths=inputs.get("response_lengths"),
    )


def response_seed(seed: int, step: int, row: int) -> int:
    """Return the 63-bit seed of a response: a row of the rollout of all ranks, after so many steps."""
    return int(fingerprint([seed, step, row]), 16) >> 1


def seeded(
    generate: Callable[..., Any], seeds: Callable[[int], Sequence[int]]
) -> Callable[..., Any]:
    """Return vLLM's `LLM.generate` with a seed for every prompt; `seeds` returns so many of them.

    Otherwise vLLM samples from the random state of the process. TRL passes the rank as the seed of the
    engine, so responses would not depend on the seed of the training, and after resuming they would differ.
    """

    def generate_with_seeds(prompts: Sequence[Any], sampling_params: Any, **named: Any) -> Any:
        per_prompt = [copy(sampling_params) for _ in prompts]
        for parameters, seed in zip(per_prompt, seeds(len(prompts)), strict=True):
            parameters.seed = seed
        return generate(prompts, sampling_params=per_prompt, **named)

    return generate_with_seeds
