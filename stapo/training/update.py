"""The update: from the mini-batch's statistics to its token selection, weights, loss and gradient.

Threshold and divisor are those of the mini-batch, however it is cut into micro-batches and spread over
ranks. Nothing here knows a trainer: the model is a function of rows, the ranks are four operations.

B sequences, T response positions; log-probs and entropies in nats.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from stapo.methods import Method
from stapo.objective import SELECTIONS, at_resolution, clipped_surrogate, kl_k3
from stapo.objective.aggregation import token_weights
from stapo.records.step import StepRecord
from stapo.training.measure import Counted, mask_scope, measure
from stapo.training.minibatch import MiniBatch, cut, deal
from stapo.training.ranks import Ranks

Forward = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""(R,) rows to the current policy's log-probs and entropies, (max(R, 1), W) each, W at least the longest of
their responses, with a gradient unless torch.no_grad() says otherwise. No rows: other ranks have a pass left;
it takes part in that with any row. A reference has no entropies."""

Statistics = Literal["behaviour", "current"]
"""Whose probabilities and entropies select tokens: of the policy that produced the responses, or of the
current one, which costs a forward pass over what the selection reads."""

NUM_SUMS = 4
"""Loss, KL, tokens clipped low, tokens clipped high."""


def update(
    forward: Forward,
    batch: MiniBatch,
    method: Method,
    ranks: Ranks,
    *,
    group_size: int,
    micro_batch_tokens: int,
    statistics: Statistics = "behaviour",
    seed: int = 0,
) -> tuple[Tensor, StepRecord]:
    """Return the loss of a whole mini-batch, its gradient accumulated in what `forward` depends on.

    Args:
        forward: the current policy.
        batch: the whole mini-batch, the same on every rank.
        method: selection, clip, KL coefficient, aggregation.
        ranks: among which the mini-batch is dealt.
        group_size: responses per prompt, consecutive rows.
        micro_batch_tokens: token budget (prompt and response, padded) of one forward and backward pass.
        statistics: whose probabilities and entropies select tokens.
        seed: of a selection that draws; another one for every step.

    Returns:
        The loss, () without gradient, and the record as far as an update knows it, the same on every rank.
    """
    logps, entropies = batch.old_logps, batch.old_entropies
    if statistics == "current" and method.reads != "none":
        logps, entropies = _current(forward, batch, method, ranks, micro_batch_tokens)

    def kept(rows: Tensor | slice) -> Tensor:
        tables = logps[rows], entropies[rows], batch.advantages[rows], batch.mask[rows]
        return select(method, *tables, seed)

    keep = kept(slice(None))
    weights = token_weights(keep, method.aggregation, group_size)
    # Without a KL term a sequence of zero advantage has no gradient: neither pass is needed.
    has_gradient = (batch.advantages != 0) | (method.kl_coefficient > 0)
    parts = _share(batch, (weights > 0).any(dim=1) & has_gradient, ranks, micro_batch_tokens)
    sums = ranks.sum(_accumulate(forward, batch, weights, method, ranks, parts))
    counted = Counted(*sums.tolist())
    scopes = None
    if method.spec.has_threshold:
        scopes = mask_scope(kept, batch.mask, keep, _scopes(batch, ranks, micro_batch_tokens))
    record = measure(batch, (logps, entropies), keep, method, counted, scopes)
    return torch.tensor(counted.loss, device=batch.mask.device), record


def select(
    method: Method, logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, seed: int
) -> Tensor:
    """Return the (R, T) tokens that a method keeps of these rows, had the mini-batch no others.

    Which of several equal entropies is left out is not left to rounding.

    Args:
        method: whose selection.
        logps: (R, T) log-probs that decide.
        entropies: (R, T), likewise.
        advantages: (R,).
        mask: (R, T) bool, response tokens.
        seed: of a selection that draws.
    """
    drawn = {"seed": seed} if method.spec.draws else {}
    chosen = SELECTIONS[method.selection]
    return chosen(
        logps, at_resolution(entropies), advantages, mask, **method.selection_args, **drawn
    )


def without_gradient(
    forward: Forward, parts: list[Tensor], like: Tensor, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies of the rows in `parts`, 0 for all others.

    Args:
        forward: policy or reference.
        parts: micro-batches, (R,) rows each.
        like: (B, T), whose shape and device both have.
        dtype: of both.
    """
    logps = torch.zeros(like.shape, dtype=dtype, device=like.device)
    entropies = torch.zeros_like(logps)
    with torch.no_grad():
        for rows in parts:
            part, entropy = forward(rows)
            logps[rows, : part.shape[1]] = part[: len(rows)].to(dtype)
            if entropy is not None:
                entropies[rows, : part.shape[1]] = entropy[: len(rows)].to(dtype)
    return logps, entropies


def _current(
    forward: Forward, batch: MiniBatch, method: Method, ranks: Ranks, budget: int
) -> tuple[Tensor, Tensor]:
    """Return (B, T) log-probs and entropies of the current policy where the selection reads them."""
    needed = batch.mask.any(dim=1)
    if method.reads == "positive":
        needed &= batch.advantages > 0
    parts = _share(batch, needed, ranks, budget)
    own = without_gradient(forward, parts, batch.mask, batch.old_logps.dtype)
    # A row is computed by one rank and 0 on the others.
    logps, entropies = (ranks.sum(values) for values in own)
    return logps, entropies


def _share(batch: MiniBatch, needed: Tensor, ranks: Ranks, budget: int) -> list[Tensor]:
    """Return this rank's micro-batches of the rows for which `needed`, (B,) bool, is true."""
    rows = needed.nonzero().flatten()
    return deal(*batch.lengths(), rows, budget, ranks.number)[ranks.index]


def _accumulate(
    forward: Forward,
    batch: MiniBatch,
    weights: Tensor,
    method: Method,
    ranks: Ranks,
    parts: list[Tensor],
) -> Tensor:
    """Accumulate the gradient of this rank's micro-batches one by one; return their (NUM_SUMS,) sums."""
    sums = torch.zeros(NUM_SUMS, dtype=torch.double, device=batch.mask.device)
    for index, rows in enumerate(parts):
        with ranks.synchronised(last=index == len(parts) - 1):
            logps, _ = forward(rows)
            loss = logps.sum() * 0.0  # No rows: other ranks have a pass left, take part in it.
            if len(rows):
                loss, counted = micro_batch_loss(logps, batch.take(rows), weights[rows], method)
                sums += counted
            ranks.backward(loss)
    return sums


def micro_batch_loss(
    logps: Tensor, batch: MiniBatch, weights: Tensor, method: Method
) -> tuple[Tensor, Tensor]:
    """Return the loss of some sequences, to be summed over all micro-batches and ranks.

    Args:
        logps: (R, W) current log-probs, with gradient.
        batch: of the same sequences, (R, W) or wider.
        weights: (R, W) or wider, `token_weights` of the whole mini-batch.
        method: clip, KL coefficient.

    Returns:
        The loss, and (NUM_SUMS,) sums in double precision without gradient.
    """
    width = logps.shape[1]
    mask, old_logps, advantages = (
        batch.mask[:, :width],
        batch.old_logps[:, :width],
        batch.advantages,
    )
    values = clipped_surrogate(
        logps, old_logps, advantages, method.clip_low, method.clip_high, method.dual_clip
    )
    kl = torch.zeros_like(values)
    if method.kl_coefficient > 0:
        if batch.ref_logps is None:
            raise ValueError("ref_logps: missing; the method has a KL term")
        kl = kl_k3(logps, batch.ref_logps[:, :width])
        values = values - method.kl_coefficient * kl
    # A position beyond a response may hold anything: out before it meets a weight of 0.
    loss = -(values.masked_fill(~mask, 0.0) * weights[:, :width]).sum()
    ratio, sign = torch.exp(logps.detach() - old_logps), advantages.unsqueeze(1)
    sums = [
        loss.detach(),
        kl.detach().masked_fill(~mask, 0.0).sum(),
        (mask & (sign < 0) & (ratio < 1 - method.clip_low)).sum(),
        (mask & (sign > 0) & (ratio > 1 + method.clip_high)).sum(),
    ]
    return loss, torch.stack([value.double() for value in sums])


def _scopes(batch: MiniBatch, ranks: Ranks, budget: int) -> dict[str, list[Tensor]]:
    """Return what the mask-scope meter compares with: a threshold per micro-batch and per rank."""
    rows = torch.arange(len(batch.mask), device=batch.mask.device)
    return {
        "micro_batch": cut(*batch.lengths(), rows, budget),
        "rank": list(rows.chunk(ranks.number)),
    }
