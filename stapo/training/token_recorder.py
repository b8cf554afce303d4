"""The record of the sampled tokens of one optimiser step: a line of `tokens.jsonl` in the work directory.

What the current policy computes at these tokens comes from the passes with gradient that the update does
anyway: log-probs and entropies from the head, and the last hidden states, from which the whole logits of
these few positions are computed once, after the last pass.

B sequences of the mini-batch, R of one pass, n sampled tokens, k of them on this rank, V logits.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stapo.methods import Method
from stapo.objective import clipped_surrogate
from stapo.objective.diagnostics import gradient_norm_bounds, logit_gradient_norm_sq
from stapo.records.tokens import TOKENS_AFTER, TOKENS_BEFORE, TOP
from stapo.training.forward import Sequences, first_predicting
from stapo.training.head import whole_logits
from stapo.training.minibatch import MiniBatch
from stapo.training.ranks import Ranks
from stapo.training.token_sample import TokenSample, sample_tokens, token_kinds

CHUNK = 64
"""Positions whose whole logits exist at once."""
TOLERANCE = 1e-3
"""Largest difference, in nats, between a log-prob of the pass and the same from the recomputed logits. Both
are sums in float32 of the same products, in another order."""


@dataclass
class TokenRecorder:
    """Samples the tokens of one mini-batch, and collects what the passes with gradient compute at them.

    `forward` of this object takes the place of the forward pass of the update, `selected` is told the
    selection, and `line` returns the record after the last pass.
    """

    model: Any
    """Policy without wrapper, with TRL's fused head."""
    passed: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    """The forward pass of the update."""
    batch: MiniBatch
    sequences: Sequences
    rewards: Tensor
    """(B,) reward of each response."""
    method: Method
    size: int
    """Number of tokens to sample, at most."""
    seed: int
    step: int
    """Optimiser step, from 1."""
    packed: bool
    temperature: float
    autocast: Callable[[], Any] = nullcontext
    """Context of the forward pass."""
    sample: TokenSample | None = None
    statistics: tuple[Tensor, Tensor, Tensor] | None = None
    """(n,) log-probs and entropies of the selection, and whether the tokens are kept."""
    own: list[int] = field(default_factory=list)
    """k indices into the sample."""
    current: list[Tensor] = field(default_factory=list)
    """Per pass (2, k) log-probs and entropies of the current policy."""
    hidden: list[Tensor] = field(default_factory=list)
    """Per pass (k, hidden size) last hidden states."""

    def selected(self, logps: Tensor, entropies: Tensor, keep: Tensor) -> None:
        """Sample tokens of the mini-batch."""
        batch = self.batch
        kinds, threshold = token_kinds(self.method, logps, entropies, batch.advantages, batch.mask)
        self.sample = sample_tokens(kinds, threshold, self.size, self.seed, self.step)
        places = self.sample.rows, self.sample.positions
        self.statistics = logps[places], entropies[places], keep[places]

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the result of the forward pass; with gradient, keep what the record needs of it."""
        if not torch.is_grad_enabled():
            return self.passed(rows)
        states: list[Tensor] = []
        hook = self.model.base_model.register_forward_hook(
            lambda _, __, output: states.append(output.last_hidden_state.detach())
        )
        try:
            logps, entropies = self.passed(rows)
        finally:
            hook.remove()
        if len(rows) and entropies is not None:
            self._take(rows, torch.stack([logps.detach(), entropies.detach()]), states[0])
        return logps, entropies

    def _take(self, rows: Tensor, outputs: Tensor, states: Tensor) -> None:
        """Keep log-probs, entropies and hidden states of the sampled tokens of a pass.

        Args:
            rows: (R,) sequences of the pass.
            outputs: (2, R, W) log-probs and entropies.
            states: (1, tokens, hidden size) if packed, otherwise (R, length, hidden size).
        """
        assert self.sample is not None
        place = {row: index for index, row in enumerate(rows.tolist())}
        sampled = [
            (i, place[row]) for i, row in enumerate(self.sample.rows.tolist()) if row in place
        ]
        if not sampled:
            return
        own, at = (list(one) for one in zip(*sampled, strict=True))
        positions = self.sample.positions[own].to(rows.device)
        index = torch.tensor(at, device=rows.device)
        first = first_predicting(
            *self.batch.take(rows).lengths(), outputs.shape[2], states.shape[1], self.packed
        )
        self.own += own
        self.current.append(outputs[:, index, positions])
        self.hidden.append(states.flatten(0, 1)[first[index] + positions])

    def line(self, ranks: Ranks) -> dict[str, Any]:
        """Return the record of the step, the same on every rank; all ranks must call this."""
        assert self.sample is not None
        assert self.statistics is not None
        found = self._of_all_ranks(ranks)
        rows, positions = self.sample.rows, self.sample.positions
        advantages, lengths = self.batch.advantages[rows], self.batch.mask[rows].sum(dim=1)
        logps, entropies, kept = self.statistics
        of_tokens = {
            "row": rows,
            "position": positions,
            "length": lengths,
            "probability": logps.double().exp(),
            "entropy": entropies,
            "kept": kept,
            "advantage": advantages,
            "reward": self.rewards[rows],
        }
        return {
            "step": self.step,
            "vocab_size": self._vocab_size(),
            "entropy_threshold": self.sample.threshold,
            "kind": self.sample.kinds,
            "weight": self.sample.weights,
            **{name: values.tolist() for name, values in of_tokens.items()},
            **self._texts(),
            **self._of_current_policy(found),
        }

    def _vocab_size(self) -> int:
        size: int = self.model.get_output_embeddings().weight.shape[0]
        return size

    def _texts(self) -> dict[str, list[Any]]:
        """Return the ids of the sampled tokens, and of those before and behind them."""
        assert self.sample is not None
        ids: dict[str, list[Any]] = {"token_id": [], "before": [], "after": []}
        prompts, _ = self.batch.lengths()
        starts = prompts[self.sample.rows.to(prompts.device)].tolist()
        sampled = zip(
            self.sample.rows.tolist(), self.sample.positions.tolist(), starts, strict=True
        )
        for row, position, start in sampled:
            text = self.sequences.ids[row][self.sequences.mask[row].bool()].tolist()
            at = start + position
            ids["token_id"].append(text[at])
            ids["before"].append(text[max(at - TOKENS_BEFORE, 0) : at])
            ids["after"].append(text[at + 1 : at + 1 + TOKENS_AFTER])
        return ids

    @torch.no_grad()
    def _of_all_ranks(self, ranks: Ranks) -> Tensor:
        """Return what the passes of all ranks computed.

        Returns:
            (n, 5 + 2 TOP): whether there was a pass, log-prob, entropy, whether the logits agree with them,
            collision, probabilities and ids of the most likely tokens.
        """
        assert self.sample is not None
        device = self.batch.mask.device
        found = torch.zeros(len(self.sample.rows), 5 + 2 * TOP, dtype=torch.double, device=device)
        if ranks.largest(len(self.own)):
            head = self.model.get_output_embeddings()
            # All ranks gather a sharded head together, also those without a sampled token.
            weight, bias = _whole(head.weight), _whole(head.bias)
            if self.own:
                self._fill(found, weight, bias)
        # Each row is computed by one rank and is 0 on the others.
        return ranks.sum(found) if len(found) else found

    def _fill(self, found: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        """Write the rows of this rank's tokens into `found`."""
        assert self.sample is not None
        own = torch.tensor(self.own, device=found.device)
        current, hidden = torch.cat(self.current, dim=1), torch.cat(self.hidden)
        ids = self.sequences.ids.to(found.device)
        rows, positions = self.sample.rows[self.own], self.sample.positions[self.own]
        tokens = ids[rows, ids.shape[1] - self.sequences.width + positions]
        found[own, 0] = 1.0
        found[own, 1], found[own, 2] = current.double()
        for part in torch.split(torch.arange(len(own), device=found.device), CHUNK):
            log_probs = self._logits(hidden[part], weight, bias).double().log_softmax(dim=1)
            chosen = log_probs.gather(1, tokens[part].unsqueeze(1)).squeeze(1)
            top = log_probs.topk(min(TOP, log_probs.shape[1]), dim=1)
            width = top.values.shape[1]
            found[own[part], 3] = ((chosen - current[0, part]).abs() <= TOLERANCE).double()
            found[own[part], 4] = (2 * log_probs).exp().sum(dim=1)
            found[own[part], 5 : 5 + width] = top.values.exp()
            found[own[part], 5 + TOP : 5 + TOP + width] = top.indices.double()

    def _logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return (k, V) float32 logits as TRL's fused head computes and scales them."""
        config = self.model.config.get_text_config()
        with self.autocast():
            logits = whole_logits(hidden, weight, bias)
        logits = logits * (getattr(config, "logit_scale", None) or 1.0)
        if cap := getattr(config, "final_logit_softcapping", None):
            logits = cap * torch.tanh(logits / cap)
        return logits / self.temperature

    def _of_current_policy(self, found: Tensor) -> dict[str, list[Any]]:
        """Return the columns of the current policy, and those of the gradient."""
        assert self.sample is not None
        passed = found[:, 0] > 0
        logps, entropies, collision = found[:, 1], found[:, 2], found[:, 4]
        rows, positions = self.sample.rows, self.sample.positions
        old = self.batch.old_logps[rows, positions].double()
        weights = self._weights(logps, old).where(passed, 0.0)
        # Exact numbers may not be negative, which rounding could make them where p is nearly 1.
        arguments = weights.unsqueeze(1), logps.unsqueeze(1)
        exact = logit_gradient_norm_sq(*arguments, collision.unsqueeze(1)).squeeze(1).clamp(min=0)
        bounds = gradient_norm_bounds(*arguments, entropies.unsqueeze(1), self._vocab_size())
        agrees = found[:, 3] > 0
        known = agrees | (weights == 0)
        top_ids = found[:, 5 + TOP :].long().tolist()

        def where(condition: Tensor, values: list[Any]) -> list[Any]:
            return [v if c else None for c, v in zip(condition.tolist(), values, strict=True)]

        return {
            "ratio": where(passed, (logps - old).clamp(max=80).exp().tolist()),
            "current_probability": where(passed, logps.exp().tolist()),
            "current_entropy": where(passed, entropies.tolist()),
            "collision": where(agrees, collision.tolist()),
            "top_tokens": where(agrees, top_ids),
            "top_probabilities": where(agrees, found[:, 5 : 5 + TOP].tolist()),
            "gradient_norm_sq": where(known, exact.tolist()),
            "lower_bound": bounds[0].squeeze(1).tolist(),
            "upper_bound": bounds[1].squeeze(1).tolist(),
        }

    def _weights(self, logps: Tensor, old: Tensor) -> Tensor:
        """Return (n,) ratio * A, 0 where clipped: the derivative of the surrogate by the log-prob."""
        assert self.sample is not None
        rows, positions = self.sample.rows, self.sample.positions
        method, advantages = self.method, self.batch.advantages[rows].double()
        with torch.enable_grad():
            logps = logps.detach().requires_grad_()
            values = clipped_surrogate(
                logps.unsqueeze(1), old.unsqueeze(1), advantages,
                method.clip_low, method.clip_high, method.dual_clip,
            ).squeeze(1)  # fmt: skip
            if self.batch.importance is not None:
                values = values * self.batch.importance[rows, positions]
            (weights,) = torch.autograd.grad(values.sum(), logps)
        return weights


def _whole(parameter: Any) -> Any:
    """Return a parameter, gathered from all ranks if it is sharded."""
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
