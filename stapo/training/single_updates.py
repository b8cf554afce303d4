"""Single updates by hand: every one from the same weights, with the same state of the optimiser.

Generation, rewards, advantages, loss and gradient are those of `StapoTrainer`, clipping and optimiser those
of the Trainer. Of Adam's moments only the second ones are kept: they come from the gradients, without
silencing, of `MOMENT_ROLLOUTS` other rollouts at the same weights, so that each parameter has a realistic
step size. With fresh moments, a first step is nearly the sign of the gradient, which hides most of what a few
tokens change. First moments would add the gradients of other rollouts to every update, so beta1 is 0. This is
our choice.

B sequences, T response positions.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stapo.records.arms import MOMENT_ROLLOUTS
from stapo.training.rollouts import response_seed
from stapo.training.trainer import StapoTrainer

Rollout = dict[str, Tensor]
"""Responses with TRL's names, old log-probs and entropies, rewards and advantages."""


class InterventionTrainer(StapoTrainer):
    """A trainer that does single updates by hand, each from the weights that it was made with."""

    optimizer: Any

    def prepare(self) -> None:
        """Wrap model and optimiser as `train` does, and remember the weights."""
        if self.args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
        self.create_optimizer()
        self.model_wrapped, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["betas"] = (0.0, group["betas"][1])
        self._start = {name: p.detach().cpu().clone() for name, p in self._trained()}

    def _trained(self) -> list[tuple[str, Any]]:
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def restore(self, moments: dict[str, Tensor] | None) -> None:
        """Return to the first weights, with second moments of an optimiser, or without any moments."""
        with torch.no_grad():
            for name, parameter in self._trained():
                parameter.copy_(self._start[name])
        self.optimizer.state.clear()
        for name, parameter in self._trained():
            if moments is not None:
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(MOMENT_ROLLOUTS), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": moments[name].to(parameter.device).clone(),
                }
        # The colocated vLLM gets the weights at the next generation.
        self._last_loaded_step = -1

    def moments(self) -> dict[str, Tensor]:
        """Return the second moments of the optimiser, on the CPU."""
        state = self.optimizer.state
        return {name: state[p]["exp_avg_sq"].detach().cpu().clone() for name, p in self._trained()}

    def respond(self, rows: Sequence[dict[str, Any]], number: int) -> Rollout:
        """Generate the responses to some prompts with the current weights.

        Args:
            rows: chats and answers, one for each prompt.
            number: determines the random numbers.
        """
        self.state.global_step = number
        torch.manual_seed(response_seed(self.args.seed, number, 0))
        inputs = [dict(row) for row in rows for _ in range(self.num_generations)]
        return self._generate_and_score_completions(inputs)

    def look(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return (B, T) log-probs and entropies of the current weights at the tokens of some responses."""
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            self.model,
            torch.cat([rollout["prompt_ids"], rollout["completion_ids"]], dim=1),
            torch.cat([rollout["prompt_mask"], rollout["completion_mask"]], dim=1),
            rollout["completion_ids"].shape[1],
        )
        return logps, entropies

    def gradient(self, rollout: Rollout, keep: Tensor) -> dict[str, Tensor]:
        """Compute the gradient of a mini-batch in which some tokens contribute; return it, on the CPU."""
        self.model.zero_grad()
        self._accumulate_gradients(self.model, rollout, keep)
        return {name: p.grad.detach().cpu().clone() for name, p in self._trained()}

    def step(self, learning_rate: float) -> None:
        """Clip the gradient and update the weights."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()


def inner(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the inner product of two gradients, in double precision."""
    return sum(float((one[name].double() * other[name].double()).sum()) for name in one)


def cosine(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the cosine of two gradients: 1 for equal ones, 0 if only one of them is 0."""
    if all(torch.equal(one[name], other[name]) for name in one):
        return 1.0
    norms = (inner(one, one) * inner(other, other)) ** 0.5
    return max(-1.0, min(1.0, inner(one, other) / norms)) if norms else 0.0
