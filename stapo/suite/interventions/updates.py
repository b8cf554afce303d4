"""Single updates by hand: every one from the same weights, with the same state of the optimiser.

Responses and rewards are those of a `StapoTrainer`, loss and gradient those of `stapo.core.update`. Of Adam's
moments only the second ones are kept: they come from the gradients, without silencing, of `MOMENT_ROLLOUTS`
other rollouts at the same weights, so that each parameter has a realistic step model. With fresh moments, a
first step is nearly the sign of the gradient, which hides most of what a few tokens change. First moments
would add the gradients of other rollouts to every update, so beta1 is 0. This is our choice.

B sequences, T response positions.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_tensor_dict

from stapo.core.methods import Method
from stapo.core.objective.penalties import PENALTIES, State
from stapo.core.ranks import AcceleratorRanks
from stapo.core.step_record import StepRecord
from stapo.core.trainer import StapoTrainer, mini_batch, sequences_of
from stapo.core.update import accumulate_gradient, next_state
from stapo.suite.records.arms import MOMENT_ROLLOUTS
from stapo.suite.study.schema import TrainingSettings

Rollout = dict[str, Tensor]
"""Responses with TRL's names, old log-probs and entropies, rewards and advantages."""
Gradient = dict[str, Tensor]
"""Name of a trained weight -> gradient or change, on the CPU."""


class Updates:
    """The policy and the optimiser of a trainer, which always return to the first weights."""

    def __init__(self, trainer: StapoTrainer) -> None:
        """Wrap model and optimiser as `train` does, and remember the weights."""
        self.trainer, self.model = trainer, trainer.model
        if trainer.args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(trainer.args.gradient_checkpointing_kwargs)
        optimizer = trainer.create_optimizer()
        trainer.model_wrapped, self.optimizer = trainer.accelerator.prepare(self.model, optimizer)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["betas"] = (0.0, group["betas"][1])
        self.weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self._first = {name: p.detach().cpu().clone() for name, p in self.weights.items()}
        self.moments: dict[str, Tensor] = {}
        self._penalty: State | None = None

    def restore(self) -> None:
        """Return to the first weights, and to the second moments if they are known."""
        self.optimizer.state.clear()
        self._penalty = None
        for name, parameter in self.weights.items():
            parameter.detach().copy_(self._first[name])
            if self.moments:
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(MOMENT_ROLLOUTS), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": self.moments[name].to(parameter.device).clone(),
                }

    def second_moments(self) -> dict[str, Tensor]:
        """Return those that the optimiser has now, on the CPU."""
        state = self.optimizer.state
        return {name: state[p]["exp_avg_sq"].cpu().clone() for name, p in self.weights.items()}

    def change(self) -> Gradient:
        """Return the change of the weights since the first ones."""
        return {name: p.detach().cpu() - self._first[name] for name, p in self.weights.items()}

    def step(self, learning_rate: float, gradient: Gradient | None = None) -> None:
        """Clip the gradient, or another one, and update the weights."""
        for name, value in (gradient or {}).items():
            self.weights[name].grad = value.to(self.weights[name])
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        args, accelerator = self.trainer.args, self.trainer.accelerator
        accelerator.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
        self.optimizer.step()

    def gradient(self, rollout: Rollout, keep: Tensor) -> Gradient:
        """Return the gradient of a mini-batch in which the tokens `keep`, (B, T) bool, contribute."""
        self._accumulate(rollout, self.trainer.method, keep=keep)
        return {name: p.grad.detach().cpu().clone() for name, p in self.weights.items()}

    def gradient_without(self, rollout: Rollout, silenced: Tensor, whole: Gradient) -> Gradient:
        """Return the gradient of a mini-batch without some tokens, given that of all its tokens.

        A mean over tokens without some of them follows from the two means, so that only responses with
        silenced tokens are computed again.
        """
        mask = rollout["completion_mask"].bool()
        count, total = int(silenced.sum()), int(mask.sum())
        if count == 0:
            return whole
        method = self.trainer.method
        parts = (method.aggregation, method.divisor, method.weighting, method.penalty)
        if parts != ("token_mean", "kept", "none", "none") or method.kl_coefficient > 0:
            return self.gradient(rollout, mask & ~silenced)
        without = self.gradient(rollout, silenced)
        return {
            name: (
                (total * value.double() - count * without[name].double()) / (total - count)
            ).float()
            for name, value in whole.items()
        }

    def by_method(
        self, rollout: Rollout, method: Method, number: int, training: TrainingSettings, seed: int
    ) -> int:
        """Use a rollout for a number of updates by a method, as in a training; return the tokens it touches.

        The statistics of all updates after the first are those of the training; their steps are the first.
        """
        inputs = {**rollout, **self.trainer.method_advantages(method, rollout["rewards"])}
        if PENALTIES[method.penalty].against_proxy:
            inputs["proxy_logps"] = self.trainer.proxy_of(method, rollout)
        touched = 0
        for index, part in enumerate(split_tensor_dict(inputs, number)):
            statistics = training.statistics if index else "behaviour"
            place = {"seed": seed + index, "step": index + 1}
            record = self._accumulate(part, method, statistics=statistics, **place)
            touched += round(record.touched_fraction * record.num_tokens)
            self.step(training.learning_rate)
        return touched

    def _accumulate(self, rollout: Rollout, method: Method, **settings: Any) -> StepRecord:
        """Compute the gradient of a mini-batch; `settings` are arguments of `update`."""
        trainer, args = self.trainer, self.trainer.args
        self.model.zero_grad()
        _, record = accumulate_gradient(
            partial(trainer.forward, self.model, sequences_of(rollout)),
            mini_batch(rollout),
            method,
            AcceleratorRanks(trainer.accelerator, self.model),
            group_size=args.num_generations,
            micro_batch_tokens=args.micro_batch_tokens,
            layout=trainer.layout,
            state=self._penalty,
            max_response_tokens=args.max_completion_length,
            **settings,
        )
        self._penalty = next_state(method, self._penalty, record)
        for parameter in self.weights.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return record


def inner(gradient: Gradient, other: Gradient) -> float:
    """Return the inner product of two gradients, in double precision."""
    return sum(float((gradient[name].double() * other[name].double()).sum()) for name in gradient)


def cosine(gradient: Gradient, other: Gradient) -> float:
    """Return the cosine of two gradients: 1 for equal ones, 0 if only one of them is 0."""
    if all(torch.equal(gradient[name], other[name]) for name in gradient):
        return 1.0
    norms = (inner(gradient, gradient) * inner(other, other)) ** 0.5
    return max(-1.0, min(1.0, inner(gradient, other) / norms)) if norms else 0.0
