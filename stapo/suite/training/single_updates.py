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
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_tensor_dict

from stapo.core.methods import Args, Method
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import at_resolution, spurious_candidates
from stapo.core.objective.penalties import PENALTIES
from stapo.core.objective.selection import chosen, drawn
from stapo.core.trainer import StapoTrainer, response_seed, sequences_of
from stapo.core.update import select
from stapo.suite.records.arms import MOMENT_ROLLOUTS, NOTHING, SILENCED
from stapo.suite.study.schema import TrainingSettings

MOST_WORDS = 8192
ROWS = 64
"""Responses of one pass of whole probabilities."""
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
        self.optimizer.state.clear()
        for name, parameter in self._trained():
            parameter.detach().copy_(self._start[name])
            if moments is not None:
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(MOMENT_ROLLOUTS), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": moments[name].to(parameter.device).clone(),
                }
        # The colocated vLLM gets the weights at the next generation.
        self._last_loaded_step, self.penalty_state = -1, None

    def moments(self) -> dict[str, Tensor]:
        """Return the second moments of the optimiser, on the CPU."""
        state = self.optimizer.state
        return {name: state[p]["exp_avg_sq"].detach().cpu().clone() for name, p in self._trained()}

    def respond(self, rows: Sequence[dict[str, Any]], number: int) -> Rollout:
        """Generate responses with the current weights; `number` determines the random numbers."""
        self.state.global_step = number
        torch.manual_seed(response_seed(self.args.seed, number, 0))
        inputs = [dict(row) for row in rows for _ in range(self.num_generations)]
        return self._generate_and_score_completions(inputs)

    def look(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return (B, T) log-probs and entropies of the current weights at the tokens of some responses."""
        return self._scored(self.model, sequences_of(rollout))

    def tails(self, rollout: Rollout, tau_p: float) -> Tensor | None:
        """Return (B, T) the probability of all words below `tau_p` at the tokens of some responses.

        Whole rows of probabilities are made: None for vocabularies over `MOST_WORDS`, which would not fit.
        """
        if self.model.config.vocab_size > MOST_WORDS:
            return None
        sequences, tails = sequences_of(rollout), []
        with torch.no_grad():
            for part in torch.split(torch.arange(len(sequences.ids)), ROWS):
                rows = part.to(sequences.ids.device)
                # `logits_to_keep` counts from the end, and the first token follows the prompt.
                logits = self.model(
                    input_ids=sequences.ids[rows],
                    attention_mask=sequences.mask[rows],
                    logits_to_keep=sequences.width + 1,
                ).logits[:, :-1]
                chances = torch.softmax(logits.float() / self.args.temperature, dim=-1)
                tails.append(chances.masked_fill(chances >= tau_p, 0.0).sum(dim=-1))
        return torch.cat(tails)

    def gradient(self, rollout: Rollout, keep: Tensor) -> dict[str, Tensor]:
        """Compute the gradient of a mini-batch in which some tokens contribute; return it, on the CPU."""
        self.model.zero_grad()
        self._accumulate_gradients(self.model, rollout, keep)
        return {name: p.grad.detach().cpu().clone() for name, p in self._trained()}

    def gradient_without(
        self, rollout: Rollout, silenced: Tensor, whole: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the gradient of a mini-batch without some tokens, given that of all its tokens.

        A mean over tokens without some of them follows from the two means, so that only responses with
        silenced tokens are computed again.
        """
        mask = rollout["completion_mask"].bool()
        count, total = int(silenced.sum()), int(mask.sum())
        if count == 0:
            return whole
        method = self.method
        parts = (method.aggregation, method.divisor, method.weighting, method.penalty)
        if parts != ("token_mean", "kept", "none", "none") or method.kl_coefficient > 0:
            return self.gradient(rollout, mask & ~silenced)
        silenced_gradient = self.gradient(rollout, silenced)
        return {
            name: (
                (total * value.double() - count * silenced_gradient[name].double())
                / (total - count)
            ).float()
            for name, value in whole.items()
        }

    def updates(
        self, rollout: Rollout, method: Method, number: int, training: TrainingSettings
    ) -> int:
        """Use a rollout for some updates by a method, as in a training; return the tokens that it touches.

        The statistics of all updates after the first are those of the training.
        """
        usual, self.method = self.method, method
        self.penalty_state, touched = None, 0
        slices, self.args.steps_per_generation = self.args.steps_per_generation, number
        self.args.statistics = training.statistics
        try:
            inputs = {**rollout, **self.method_advantages(rollout["rewards"])}
            if PENALTIES[method.penalty].against_proxy:
                inputs["proxy_logps"] = self.proxy_of(rollout)
            for self._step, part in enumerate(split_tensor_dict(inputs, number)):
                self.model.zero_grad()
                self._accumulate_gradients(self.model, part)
                record = self._record
                assert record is not None
                touched += round(record.touched_fraction * record.num_tokens)
                self.step(training.learning_rate)
        finally:
            self.penalty_state = None  # Another method has another state, or none.
            self.method, self._step, self.args.steps_per_generation = usual, 0, slices
            self.args.statistics = "behaviour"
        return touched

    def change(self) -> dict[str, Tensor]:
        """Return the change of the weights since the first ones, on the CPU."""
        return {name: p.detach().cpu() - self._start[name] for name, p in self._trained()}

    def step(self, learning_rate: float, gradient: dict[str, Tensor] | None = None) -> None:
        """Clip the gradient, or another one, and update the weights."""
        if gradient is not None:
            for name, parameter in self._trained():
                parameter.grad = gradient[name].to(parameter)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()


def inner(gradient: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the inner product of two gradients, in double precision."""
    return sum(float((gradient[name].double() * other[name].double()).sum()) for name in gradient)


def cosine(gradient: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Return the cosine of two gradients: 1 for equal ones, 0 if only one of them is 0."""
    if all(torch.equal(gradient[name], other[name]) for name in gradient):
        return 1.0
    norms = (inner(gradient, gradient) * inner(other, other)) ** 0.5
    return max(-1.0, min(1.0, inner(gradient, other) / norms)) if norms else 0.0


def candidates_of(batch: MiniBatch, s2t: Args) -> Tensor:
    """Return the (B, T) bool mask of tokens with A > 0 and a probability below tau_p."""
    tau_p = float(s2t["tau_p"])
    return spurious_candidates(batch.old_logps, batch.advantages, batch.mask, tau_p)


def silenced_by_arm(batch: MiniBatch, method: Method, s2t: Args, seed: int) -> dict[str, Tensor]:
    """Return the (B, T) bool mask of the tokens that each arm of `ARMS` silences.

    S2T's threshold is strict: it silences no candidate with the entropy of the threshold, so that it may
    silence fewer than the quantile says. The other arms silence exactly as many tokens as S2T does, or all
    that there are. Of equal entropies, the first ones in row-major order are silenced. The mini-batch is the
    first of a rollout, so that the behaviour policy is the current one.
    """
    statistics = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    silenced = batch.mask & ~select(method, *statistics, seed)
    count = int(silenced.sum())
    candidates = candidates_of(batch, s2t)
    positive, negative = (
        batch.mask & sign.unsqueeze(1) for sign in (batch.advantages > 0, batch.advantages < 0)
    )
    mirrored = replace(batch, advantages=-batch.advantages)
    rare_negative = candidates_of(mirrored, s2t)
    generator = torch.Generator().manual_seed(seed)
    return {
        NOTHING: torch.zeros_like(silenced),
        SILENCED: silenced,
        "random_candidates": drawn(candidates, count, generator),
        "random_positive": drawn(positive, count, generator),
        "high_entropy": _extreme(batch, candidates, count, highest=True),
        "rare_negative": drawn(rare_negative, count, generator),
        "mirror": _extreme(batch, rare_negative, count, highest=False),
        "likely_negative": drawn(negative & ~rare_negative, count, generator),
        "random": drawn(positive | negative, count, generator),
    }


def _extreme(batch: MiniBatch, among: Tensor, count: int, *, highest: bool) -> Tensor:
    """Return the mask of the `count` tokens of a mask that have the highest or the lowest entropies."""
    entropies = at_resolution(batch.old_entropies)[among]
    order = torch.sort(entropies, descending=highest, stable=True).indices
    return chosen(among, order[:count])
