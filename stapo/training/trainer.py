"""StapoTrainer: TRL's GRPOTrainer with one exact update for all methods.

One optimiser step is one mini-batch of whole prompts. Old log-probs and entropies come from one pass
without gradient, which feeds the token selection; threshold and divisor are those of the mini-batch,
however it is cut. Rollouts, data loading, optimiser and resuming are TRL's.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from stapo.methods import METHODS, Method
from stapo.objective import (
    SELECTIONS,
    clipped_surrogate,
    group_advantages,
    kl_k3,
    spurious_candidates,
)
from stapo.training.minibatch import cut, token_weights

ENTROPY_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DIAGNOSTIC_TAU_P = 0.002
"""The paper's tau_p: the candidates of S2T are counted for every method."""


@dataclass
class StapoConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and what ours adds; `per_device_train_batch_size` is the whole mini-batch."""

    method: str = field(default="stapo", metadata={"help": "Name in stapo.methods.METHODS"})
    micro_batch_tokens: int = field(
        default=32768, metadata={"help": "Token budget of one forward and backward pass, padded"}
    )
    advantage_epsilon: float = field(default=1e-6, metadata={"help": "Added to the group's std"})


class StapoTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains with any method of `stapo.methods`, otherwise used as TRL's GRPOTrainer.

    Args:
        method: overrides `args.method`, for a method that has no name.
        on_metrics: called with the record of every optimiser step.
        *args: as GRPOTrainer.
        **kwargs: as GRPOTrainer; `args` must be a `StapoConfig`.

    Raises:
        ValueError: settings that this update does not know.
    """

    def __init__(
        self,
        *args: Any,
        method: Method | None = None,
        on_metrics: Callable[[dict[str, Any]], None] | None = None,
        **kwargs: Any,
    ) -> None:
        config: StapoConfig = kwargs["args"]
        self.method = method or METHODS[config.method]
        self.on_metrics = on_metrics
        if config.gradient_accumulation_steps != 1 or config.num_iterations != 1:
            raise ValueError(
                "gradient_accumulation_steps and num_iterations: expected 1; micro-batches are cut "
                "by micro_batch_tokens inside one mini-batch"
            )
        # The rest of the clip and the aggregation are the method's; TRL's loss is not used.
        config.beta = self.method.kl_coefficient
        self._behaviour_entropies: Any = None  # Set on the way by TRL's rollout.
        self._rollout_rewards: Any = None
        self._buffered_inputs: Any = None
        self._seconds: dict[str, float] = {}
        self._record: dict[str, Any] | None = None
        super().__init__(*args, **kwargs)
        if self.accelerator.num_processes > 1:
            raise ValueError("this version trains in one process; start it without a launcher")

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
        """Add behaviour entropies, rewards and our advantages to TRL's rollout."""
        self._behaviour_entropies = None
        start = perf_counter()
        output: dict[str, Tensor] = super()._generate_and_score_completions(inputs)
        if self._behaviour_entropies is None:
            # With a single mini-batch per rollout TRL leaves the old log-probs out.
            with torch.no_grad():
                logps, _, _ = self._get_per_token_logps_and_entropies(
                    self.model,
                    torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
                    torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
                    output["completion_ids"].size(1),
                )
            output["old_per_token_logps"] = logps
        output["old_entropies"] = self._behaviour_entropies
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
        """Return log-probs and entropies (B, T), computed in micro-batches of similar length.

        TRL calls this for the old and for the reference log-probs; only the policy's entropies are
        kept, for the token selection.
        """
        start = perf_counter()
        responses = attention_mask[:, -logits_to_keep:].sum(dim=1)
        prompts = attention_mask[:, :-logits_to_keep].sum(dim=1)
        logps = torch.zeros(responses.shape[0], logits_to_keep, device=input_ids.device)
        entropies = torch.zeros_like(logps)
        rows = torch.arange(len(logps), device=input_ids.device)
        for micro in cut(prompts, responses, rows, self.args.micro_batch_tokens):
            length = int(responses[micro].max())
            part, entropy = self._forward(model, input_ids, attention_mask, logits_to_keep, micro)
            logps[micro, :length] = part
            if entropy is not None:  # TRL's reference model computes none.
                entropies[micro, :length] = entropy
        if model is self.model:
            self._behaviour_entropies = entropies
            self._seconds["old_logps"] = perf_counter() - start
        return logps, entropies, None

    def _forward(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, width: int, rows: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probs and entropies of some rows, trimmed to their own longest response.

        Args:
            model: policy or reference.
            input_ids: (B, P + T), prompts padded on the left, responses on the right.
            attention_mask: (B, P + T).
            width: T.
            rows: (R,) indices.

        Returns:
            Two (R, longest response) tensors in nats; no entropies from the reference.
        """
        longest_prompt = int(attention_mask[rows, :-width].sum(dim=1).max())
        longest_response = int(attention_mask[rows, -width:].sum(dim=1).max())
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

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Run forward and backward of one mini-batch; the Trainer clips and steps."""
        model.train()
        self._seconds = {}
        mini_batch = self._prepare_inputs(inputs)
        start = perf_counter()
        loss = self._accumulate_gradients(model, mini_batch)
        self._seconds["update"] = perf_counter() - start
        self._step += 1
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the loss is {loss.item()}; training stopped, "
                "the last checkpoint is intact"
            )
        return loss

    def _accumulate_gradients(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """Add the gradient of the whole mini-batch's loss, micro-batch by micro-batch."""
        method = self.method
        mask = batch["completion_mask"].bool()
        old_logps, advantages = batch["old_per_token_logps"], batch["advantages"]
        keep = self._select(batch, mask)
        weights = token_weights(keep, method.aggregation)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        # Without a KL term a sequence of zero advantage has no gradient: neither pass is needed.
        contributes = (weights > 0).any(dim=1) & ((advantages != 0) | (method.kl_coefficient > 0))
        rows = contributes.nonzero().flatten()
        total, logps = torch.zeros((), device=mask.device), old_logps.clone()
        kl = torch.zeros_like(total)
        lengths, prompts = mask.sum(dim=1), batch["prompt_mask"].sum(dim=1)
        for micro in cut(prompts, lengths, rows, self.args.micro_batch_tokens):
            current, _ = self._forward(model, ids, attention, mask.shape[1], micro)
            width = current.shape[1]
            values = clipped_surrogate(
                current,
                old_logps[micro, :width],
                advantages[micro],
                method.clip_low,
                method.clip_high,
                method.dual_clip,
            )
            if method.kl_coefficient > 0:
                penalty = kl_k3(current, batch["ref_per_token_logps"][micro, :width])
                values = values - method.kl_coefficient * penalty
                kl = kl + (penalty.detach() * mask[micro, :width]).sum() / mask.sum()
            # A position beyond a response may hold anything: out before it meets a weight of 0.
            values = values.masked_fill(~mask[micro, :width], 0.0)
            loss = -(values * weights[micro, :width]).sum()
            self.accelerator.backward(loss)
            total += loss.detach()
            logps[micro, :width] = current.detach()
        for parameter in model.parameters():
            # Without any gradient Adam's moments must decay all the same.
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._record = self._measure(batch, mask, keep, logps)
        self._record |= {"loss": total.item(), "kl": kl.item()}
        return total

    def _select(self, batch: dict[str, Tensor], mask: Tensor) -> Tensor:
        args = dict(self.method.selection_args)
        if self.method.selection == "silence_random":
            args["seed"] = self.args.seed * 1_000_003 + self.state.global_step
        return SELECTIONS[self.method.selection](
            batch["old_per_token_logps"], batch["old_entropies"], batch["advantages"], mask, **args
        )

    def _measure(
        self, batch: dict[str, Tensor], mask: Tensor, keep: Tensor, logps: Tensor
    ) -> dict[str, Any]:
        """Return what is recorded of a mini-batch; shares are of its response tokens."""
        method, num_tokens = self.method, int(mask.sum())
        advantages = batch["advantages"].unsqueeze(1)
        ratio = torch.exp(logps - batch["old_per_token_logps"])
        low = mask & (advantages < 0) & (ratio < 1 - method.clip_low)
        high = mask & (advantages > 0) & (ratio > 1 + method.clip_high)
        tau_p = float(method.selection_args.get("tau_p", DIAGNOSTIC_TAU_P))
        candidates = spurious_candidates(
            batch["old_per_token_logps"], batch["advantages"], mask, tau_p
        )
        entropies = batch["old_entropies"][mask].double()
        levels = torch.tensor(ENTROPY_QUANTILES, dtype=torch.double, device=entropies.device)
        quantiles = torch.quantile(entropies, levels).tolist()
        lengths = mask.sum(dim=1)
        ended = (batch["completion_ids"] == self._tokenizer.eos_token_id) & mask
        silenced = int((candidates & ~keep).sum()) if "tau_p" in method.selection_args else 0
        return {
            "reward": batch["rewards"].mean().item(),
            "zero_advantage_fraction": (batch["advantages"] == 0).float().mean().item(),
            "entropy": entropies.mean().item(),
            "entropy_quantiles": {
                str(level): value for level, value in zip(ENTROPY_QUANTILES, quantiles, strict=True)
            },
            "num_tokens": num_tokens,
            "num_candidates": int(candidates.sum()),
            "num_silenced": silenced,
            "candidate_fraction": int(candidates.sum()) / num_tokens,
            "silenced_fraction": silenced / num_tokens,
            "kept_fraction": int(keep.sum()) / num_tokens,
            "clip_low_fraction": int(low.sum()) / num_tokens,
            "clip_high_fraction": int(high.sum()) / num_tokens,
            "response_length": lengths.float().mean().item(),
            "truncated_fraction": 1 - ended.any(dim=1).float().mean().item(),
        }

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
            if self.on_metrics is not None:
                self.on_metrics(record)
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint aside and rename it; only then are older ones removed."""
        output = Path(self.args.output_dir)
        aside = output / "writing"
        shutil.rmtree(aside, ignore_errors=True)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        self.args.output_dir = str(aside)
        try:
            # Past GRPOTrainer, which would add a model card to every checkpoint.
            Trainer._save_checkpoint(self, model, trial)
        finally:
            self.args.output_dir, self.args.save_total_limit = str(output), limit
        name = f"checkpoint-{self.state.global_step}"
        shutil.rmtree(output / name, ignore_errors=True)
        os.replace(aside / name, output / name)
        shutil.rmtree(aside, ignore_errors=True)
        for old in checkpoints(output)[: -limit if limit else None]:
            shutil.rmtree(old)


def checkpoints(directory: Path) -> list[Path]:
    """Return the whole step checkpoints of a directory, the newest last."""
    found = [path for path in directory.glob("checkpoint-*") if path.name[11:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[11:]))
