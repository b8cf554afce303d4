"""StapoTrainer: TRL's GRPOTrainer with one exact update for all methods.

One optimiser step is one mini-batch of whole prompts. Old log-probs and entropies come from one pass
without gradient, which feeds the token selection; threshold and divisor are those of the mini-batch,
however it is cut into micro-batches and spread over ranks. Rollouts, data loading, optimiser,
sharding and resuming are TRL's and Accelerate's.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from transformers import Trainer, TrainerState
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from stapo.methods import METHODS, Method
from stapo.objective import SELECTIONS, at_resolution, group_advantages
from stapo.training.checkpoints import (
    ASIDE,
    STATES_PER_PARAMETER,
    UnreadableCheckpointError,
    checksums_of_rank,
    put_in_place,
    require_space,
    seal,
    step_of,
)
from stapo.training.measure import SCOPED, mask_scope, measure
from stapo.training.minibatch import cut, deal, token_weights
from stapo.training.ranks import largest_over_ranks, sum_over_ranks, whole_rollout
from stapo.training.update import NUM_SUMS, micro_batch_loss

ROLLOUT = (
    "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps",
    "old_entropies", "ref_per_token_logps", "sampling_per_token_logps",
)  # fmt: skip
"""What is taken of TRL's rollout."""
ROLLOUT_FILE = "rollout.safetensors"
"""In a checkpoint from the middle of a rollout: the whole rollout."""
NOT_THE_CHECKPOINTS = (
    MemoryError, torch.OutOfMemoryError, torch.AcceleratorError, torch.distributed.DistError,
)  # fmt: skip
"""Errors of the machine while a checkpoint is loaded; an older one would not help."""
UPDATE = ("completion_mask", "old_per_token_logps", "ref_per_token_logps", "advantages")
"""What the loss of a micro-batch needs."""


@dataclass
class StapoConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and ours; `per_device_train_batch_size` is a rank's share of the mini-batch."""

    method: str = field(default="stapo", metadata={"help": "Name in stapo.methods.METHODS"})
    statistics: str = field(
        default="behaviour",
        metadata={"help": "Whose probabilities and entropies select tokens: behaviour or current"},
    )
    micro_batch_tokens: int = field(
        default=32768, metadata={"help": "Token budget of one forward and backward pass, padded"}
    )
    advantage_epsilon: float = field(default=1e-6, metadata={"help": "Added to the group's std"})
    run_fingerprint: str = field(
        default="", metadata={"help": "Written into checkpoints; another run's are not continued"}
    )

    def __post_init__(self) -> None:
        if self.use_cpu:
            # Of several processes each would have a `cpu:0`, to which torch.load restores nothing.
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
        super().__post_init__()


class StapoTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains with any method of `stapo.methods`, otherwise used as TRL's GRPOTrainer.

    Args:
        model: as GRPOTrainer, a path or a model.
        reward_funcs: as GRPOTrainer.
        args: settings.
        *others: as GRPOTrainer, from `train_dataset` on.
        method: overrides `args.method`, for a method that has no name.
        on_metrics: called on the main process with the record of every optimiser step.
        **named: as GRPOTrainer.

    Raises:
        ValueError: settings that this update does not know.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: StapoConfig,
        *others: Any,
        method: Method | None = None,
        on_metrics: Callable[[dict[str, Any]], None] | None = None,
        **named: Any,
    ) -> None:
        if method is None and args.method not in METHODS:
            raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {args.method}")
        self.method = method or METHODS[args.method]
        self.on_metrics = on_metrics
        if args.gradient_accumulation_steps != 1 or args.num_iterations != 1:
            raise ValueError(
                "gradient_accumulation_steps and num_iterations: expected 1; micro-batches are cut "
                "by micro_batch_tokens inside one mini-batch"
            )
        if args.statistics not in ("behaviour", "current"):
            raise ValueError(f"statistics: expected behaviour or current, found {args.statistics}")
        # The rest of the clip and the aggregation are the method's; TRL's loss is not used.
        args.beta = self.method.kl_coefficient
        if isinstance(model, str):
            # TRL says itself that no code of the model is run, but would read pickled weights.
            args.model_init_kwargs = {"use_safetensors": True, **(args.model_init_kwargs or {})}
        self._behaviour_entropies: Any = None  # Set on the way by TRL's rollout.
        self._rollout_rewards: Any = None
        self._buffered_inputs: Any = None
        self._mini_batch: dict[str, Tensor] = {}
        self._seconds: dict[str, float] = {}
        self._record: dict[str, Any] | None = None
        self.logs: tuple[Path, ...] = ()
        """Files that every checkpoint holds a copy of."""
        super().__init__(model, reward_funcs, args, *others, **named)

    # Rollout

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Tensor]:
        """Return the next mini-batch: whole prompts in data order (TRL shuffles sequences)."""
        if not self.model.training:
            inputs: dict[str, Tensor] = super()._prepare_inputs(generation_batch)
            return inputs
        slices = self.args.steps_per_generation
        if self._step % slices == 0 or self._buffered_inputs is None:
            rollout = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(rollout, slices)
        mini_batch: dict[str, Tensor] = self._buffered_inputs[self._step % slices]
        return mini_batch

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Return the rollout of all ranks, with behaviour entropies, rewards and our advantages."""
        self._behaviour_entropies = None
        start = perf_counter()
        output: dict[str, Tensor] = super()._generate_and_score_completions(inputs)
        if self._behaviour_entropies is None:
            # With a single mini-batch per rollout TRL leaves the old log-probs out.
            with torch.no_grad():
                output["old_per_token_logps"], _, _ = self._get_per_token_logps_and_entropies(
                    self.model,
                    torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
                    torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
                    output["completion_ids"].size(1),
                )
        output["old_entropies"] = self._behaviour_entropies
        if not self.model.training:
            return output
        output = whole_rollout(
            self.accelerator,
            {name: output[name] for name in ROLLOUT if name in output},
            self._tokenizer.pad_token_id,
        )
        output["rewards"] = self._rollout_rewards
        output["advantages"] = group_advantages(
            self._rollout_rewards, self.num_generations, self.args.advantage_epsilon
        )
        self._seconds["rollout"] = perf_counter() - start
        return output

    def _generate(self, prompts: list[Any]) -> Any:
        start = perf_counter()
        generated = super()._generate(prompts)
        self._seconds["generate"] = perf_counter() - start
        return generated

    def _calculate_rewards(self, *args: Any) -> Tensor:
        start = perf_counter()
        per_function: Tensor = super()._calculate_rewards(*args)
        weights = self.reward_weights.to(per_function.device)
        self._rollout_rewards = (per_function * weights).nansum(dim=1)
        self._seconds["reward"] = perf_counter() - start
        return per_function

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Tensor, Tensor, None]:
        """Return log-probs and entropies (b, T) of this rank's rows, in micro-batches of similar length.

        TRL calls this for the old and for the reference log-probs; only the policy's entropies are
        kept, for the token selection.
        """
        start = perf_counter()
        responses = attention_mask[:, -logits_to_keep:].sum(dim=1)
        prompts = attention_mask[:, :-logits_to_keep].sum(dim=1)
        rows = torch.arange(len(responses), device=input_ids.device)
        parts = cut(prompts, responses, rows, self.args.micro_batch_tokens)
        parts += [rows[:0]] * (largest_over_ranks(self.accelerator, len(parts)) - len(parts))
        logps, entropies = self._without_gradient(
            model, input_ids, attention_mask, logits_to_keep, parts
        )
        if model is self.model:
            self._behaviour_entropies = entropies
            self._seconds["old_logps"] = perf_counter() - start
        return logps, entropies, None

    # Passes through the model

    def _without_gradient(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, width: int, parts: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies (B, T) of the rows in `parts`, 0 for all others."""
        logps = torch.zeros(len(input_ids), width, device=input_ids.device)
        entropies = torch.zeros_like(logps)
        with torch.no_grad():
            for rows in parts:
                part, entropy = self._forward(model, input_ids, attention_mask, width, rows)
                logps[rows, : part.shape[1]] = part[: len(rows)]
                if entropy is not None:  # TRL's reference model computes none.
                    entropies[rows, : part.shape[1]] = entropy[: len(rows)]
        return logps, entropies

    def _forward(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, width: int, rows: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probs and entropies of some rows, trimmed to their own longest response.

        Args:
            model: policy or reference.
            input_ids: (B, P + T), prompts padded on the left, responses on the right.
            attention_mask: (B, P + T).
            width: T.
            rows: (R,) indices; none means that other ranks have a pass left, and takes part in it with
                the shortest row.

        Returns:
            Two (max(R, 1), longest response) tensors in nats; no entropies from the reference.
        """
        if len(rows) == 0:
            rows = attention_mask.sum(dim=1).argmin().unsqueeze(0)
        longest_prompt = int(attention_mask[rows, :-width].sum(dim=1).max())
        # One position at least: a row whose response is masked out altogether has no token.
        longest_response = max(int(attention_mask[rows, -width:].sum(dim=1).max()), 1)
        first = input_ids.shape[1] - width - longest_prompt
        last = input_ids.shape[1] - width + longest_response
        ids, attended = input_ids[rows, first:last], attention_mask[rows, first:last]
        labels = ids.masked_fill(attended == 0, -100)
        labels[:, :longest_prompt] = -100
        with self.accelerator.autocast():
            output = model(
                input_ids=ids, attention_mask=attended, labels=labels, fused_lm_head=True
            )
        entropy = output.entropy
        return (
            output.log_probs[:, -longest_response:].float(),
            None if entropy is None else entropy[:, -longest_response:].float(),
        )

    # Update

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Run forward and backward of one mini-batch; the Trainer clips and steps."""
        model.train()
        self._seconds = {}
        self._mini_batch = self._prepare_inputs(inputs)
        start = perf_counter()
        loss = self._accumulate_gradients(model, self._mini_batch)
        self._seconds["update"] = perf_counter() - start
        self._step += 1
        if not torch.isfinite(loss):
            self._refuse("loss", loss.item())
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Return the gradient's norm, the last thing that is known before the weights change."""
        norm = super()._get_grad_norm(model, grad_norm)
        if not torch.isfinite(torch.as_tensor(norm)):
            self._refuse("gradient norm", float(norm))
        return norm

    def _refuse(self, what: str, value: float) -> None:
        """Stop before the weights change, with the mini-batch saved for inspection."""
        step = self.state.global_step + 1
        path = Path(self.args.output_dir) / f"refused-step-{step}.safetensors"
        if self.accelerator.is_main_process:
            save_file({name: value.contiguous() for name, value in self._mini_batch.items()}, path)
        raise FloatingPointError(
            f"step {step}: the {what} is {value}; the weights were not changed, the mini-batch is in {path} "
            "and the last checkpoint is whole"
        )

    def _accumulate_gradients(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """Add the gradient of the whole mini-batch's loss, this rank's micro-batches one by one.

        Args:
            model: policy, wrapped for the launch.
            batch: the whole mini-batch, the same on every rank.

        Returns:
            The loss of the mini-batch, the same on every rank.
        """
        method, mask = self.method, batch["completion_mask"].bool()
        advantages = batch["advantages"]
        sequences = (
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        )
        statistics = self._statistics(model, sequences, batch, mask)
        keep = self._select(statistics, advantages, mask)
        weights = token_weights(keep, method.aggregation, self.num_generations)
        # Without a KL term a sequence of zero advantage has no gradient: neither pass is needed.
        contributes = (weights > 0).any(dim=1) & ((advantages != 0) | (method.kl_coefficient > 0))
        parts = self._parts(batch, mask, contributes.nonzero().flatten())
        sums = torch.zeros(NUM_SUMS, dtype=torch.double, device=mask.device)
        for index, rows in enumerate(parts):
            with self._synchronised(model, last=index == len(parts) - 1):
                logps, _ = self._forward(model, *sequences, mask.shape[1], rows)
                loss = logps.sum() * 0.0  # No rows: other ranks have a pass left, take part in it.
                if len(rows):
                    fields = {name: batch[name][rows] for name in UPDATE if name in batch}
                    loss, counted = micro_batch_loss(logps, fields, weights[rows], method)
                    sums += counted
                # Accelerate's engines take the mean over ranks where a sum is meant.
                self.accelerator.backward(loss * self.accelerator.num_processes)
        for parameter in model.parameters():
            # Without any gradient Adam's moments must decay all the same.
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        total, kl, clip_low, clip_high = sum_over_ranks(self.accelerator, sums).tolist()
        self._record = {
            **measure(batch, statistics, mask, keep, method, self.eos_token_ids),
            **self._scopes(statistics, batch, mask, keep),
            "clip_low_fraction": clip_low / max(int(mask.sum()), 1),
            "clip_high_fraction": clip_high / max(int(mask.sum()), 1),
            "loss": total,
            "kl": kl / max(int(mask.sum()), 1),
        }
        return torch.tensor(total, device=mask.device)

    def _parts(self, batch: dict[str, Tensor], mask: Tensor, rows: Tensor) -> list[Tensor]:
        """Return this rank's micro-batches of some rows."""
        hands = deal(
            batch["prompt_mask"].sum(dim=1),
            mask.sum(dim=1),
            rows,
            self.args.micro_batch_tokens,
            self.accelerator.num_processes,
        )
        return hands[self.accelerator.process_index]

    def _synchronised(self, model: Any, last: bool) -> Any:
        """Return the context of one micro-batch: replicas need to exchange gradients once only.

        Sharded gradients are exchanged in every pass, since whole ones would not fit.
        """
        replicated = (DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
        if last or self.accelerator.distributed_type not in replicated:
            return nullcontext()
        return self.accelerator.no_sync(model)

    # Token selection

    def _statistics(
        self,
        model: Any,
        sequences: tuple[Tensor, Tensor],
        batch: dict[str, Tensor],
        mask: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return (B, T) log-probs and entropies that select tokens, the same on every rank."""
        behaviour = batch["old_per_token_logps"], batch["old_entropies"]
        first = self._step % self.args.steps_per_generation == 0
        if self.args.statistics == "behaviour" or first or self.method.selection == "keep_all":
            return behaviour
        needed = mask.any(dim=1)
        if self.method.reads_only_candidates:
            needed &= batch["advantages"] > 0
        parts = self._parts(batch, mask, needed.nonzero().flatten())
        own = self._without_gradient(model, *sequences, mask.shape[1], parts)
        # A row is computed by one rank and 0 on the others.
        logps, entropies = (sum_over_ranks(self.accelerator, values) for values in own)
        return logps, entropies

    def _select(
        self, statistics: tuple[Tensor, Tensor], advantages: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the tokens kept; which of several equal entropies is left out is not left to rounding."""
        logps, entropies = statistics
        args = dict(self.method.selection_args)
        if self.method.selection == "silence_random":
            args["seed"] = self.args.seed * 1_000_003 + self.state.global_step
        return SELECTIONS[self.method.selection](
            logps, at_resolution(entropies), advantages, mask, **args
        )

    def _scopes(
        self,
        statistics: tuple[Tensor, Tensor],
        batch: dict[str, Tensor],
        mask: Tensor,
        keep: Tensor,
    ) -> dict[str, Any]:
        """Return the mask-scope meter's record: thresholds per micro-batch and per rank instead."""
        if self.method.selection not in SCOPED:
            return {}
        rows = torch.arange(len(mask), device=mask.device)
        prompts = batch["prompt_mask"].sum(dim=1)
        scopes = {
            "micro_batch": cut(prompts, mask.sum(dim=1), rows, self.args.micro_batch_tokens),
            "rank": list(rows.chunk(self.accelerator.num_processes)),
        }

        def select(rows: Tensor) -> Tensor:
            part = statistics[0][rows], statistics[1][rows]
            return self._select(part, batch["advantages"][rows], mask[rows])

        return {"mask_scope": mask_scope(select, mask, keep, scopes)}

    # Records and checkpoints

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Complete the record of a step with what the Trainer knows, and hand it on."""
        if self._record is not None and "grad_norm" in logs:
            record = {
                "step": self.state.global_step,
                **self._record,
                "gradient_norm": float(logs["grad_norm"]),
                "learning_rate": float(logs["learning_rate"]),
                "seconds": dict(self._seconds),
            }
            self._record = None
            if self.on_metrics is not None and self.accelerator.is_main_process:
                self.on_metrics(record)
            logs |= {
                f"stapo/{name}": value
                for name, value in record.items()
                if isinstance(value, int | float) and name != "step"
            }
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint aside, seal and rename it; only then are older ones removed."""
        output, main = Path(self.args.output_dir), self.accelerator.is_main_process
        parameters = sum(p.numel() * p.element_size() for p in self.model.parameters())
        require_space(output, STATES_PER_PARAMETER * parameters)
        aside = output / ASIDE
        if main:
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        self.args.output_dir = str(aside)
        try:
            # Past GRPOTrainer, which would add a model card to every checkpoint.
            Trainer._save_checkpoint(self, model, trial)
        finally:
            self.args.output_dir, self.args.save_total_limit = str(output), limit
        written = aside / f"checkpoint-{self.state.global_step}"
        if main:
            self._save_rollout(written)
            for log in self.logs:
                shutil.copyfile(log, written / log.name)
        self.accelerator.wait_for_everyone()
        rank, num_processes = self.accelerator.process_index, self.accelerator.num_processes
        files = gather_object([checksums_of_rank(written, rank, num_processes)])
        if main:
            seal(
                written, self.checkpoint_identity(), {k: v for one in files for k, v in one.items()}
            )
            put_in_place(written, output, limit)
            shutil.rmtree(aside, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _save_rollout(self, checkpoint: Path) -> None:
        """Write the rollout if mini-batches of it are still to come; every rank holds all of it."""
        if self._step % self.args.steps_per_generation:
            parts = self._buffered_inputs
            names = [name for name, value in parts[0].items() if value is not None]
            whole = {name: torch.cat([part[name] for part in parts]) for name in names}
            save_file(whole, checkpoint / ROLLOUT_FILE)

    # Resuming

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **named: Any) -> Any:
        """Train as the Trainer does.

        Raises:
            UnreadableCheckpointError: on all ranks, when one of them cannot load its part.
        """
        if isinstance(resume_from_checkpoint, str):
            self._load(resume_from_checkpoint, lambda: _check_state(Path(resume_from_checkpoint)))
        return super().train(resume_from_checkpoint, *args, **named)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load = super()._load_from_checkpoint
        self._load(resume_from_checkpoint, lambda: load(resume_from_checkpoint, model))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        load = super()._load_optimizer_and_scheduler
        self._load(checkpoint, lambda: load(checkpoint))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load the random state, the last thing before the next step, and the rollout in use."""
        load = super()._load_rng_state
        self._load(checkpoint, lambda: load(checkpoint))
        self._load(checkpoint, lambda: self._load_rollout(checkpoint))

    def _load_rollout(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        slices, self._step = self.args.steps_per_generation, step_of(Path(checkpoint))
        self._buffered_inputs = None
        if self._step % slices:
            whole = load_file(Path(checkpoint) / ROLLOUT_FILE, device=str(self.accelerator.device))
            self._buffered_inputs = split_tensor_dict(whole, slices)

    def _load(self, checkpoint: str | None, load: Callable[[], Any]) -> None:
        """Load a part of a checkpoint; if that fails on one rank, it fails on all."""
        fault = None
        try:
            load()
        except NOT_THE_CHECKPOINTS:
            raise
        except (Exception, CheckpointException) as error:  # The latter is no Exception.
            causes = list(getattr(error, "failures", {}).values())  # Of the ranks that could not.
            cause = causes[0][0] if causes else error
            fault = f"{type(cause).__name__}: {' '.join(str(cause).split())[:120]}"
        faults = [one for one in gather_object([fault]) if one]
        if faults:
            raise UnreadableCheckpointError(f"cannot be loaded: {faults[0]}")

    def checkpoint_identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with to be continued by this trainer."""
        return {
            "fingerprint": self.args.run_fingerprint,
            "layout": "FSDP" if self.is_fsdp_enabled else "whole states",
            "num_processes": self.accelerator.num_processes,
        }


def _check_state(checkpoint: Path) -> None:
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if state.global_step != step_of(checkpoint):
        raise ValueError(f"trainer_state.json is of step {state.global_step}")
