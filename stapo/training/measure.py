"""What is recorded of a mini-batch, and how much the scope of the token selection matters in it.

B sequences of the whole mini-batch, T response positions; shares are of its response tokens.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from stapo.methods import TAU_P, Method
from stapo.objective import spurious_candidates
from stapo.objective.quantiles import quantiles
from stapo.records.step import QUANTILES, StepRecord
from stapo.training.minibatch import MiniBatch

Select = Callable[[Tensor], Tensor]
"""(R,) rows of the mini-batch to the (R, T) tokens kept when these rows are all there is."""


class Counted(NamedTuple):
    """Sums over the mini-batch that come with its gradient."""

    loss: float
    kl: float
    clipped_low: float
    clipped_high: float


def measure(
    batch: MiniBatch,
    statistics: tuple[Tensor, Tensor],
    keep: Tensor,
    method: Method,
    counted: Counted,
    scopes: dict[str, dict[str, int]] | None,
) -> StepRecord:
    """Return the record of a mini-batch, as far as its update knows it.

    Args:
        batch: the whole mini-batch.
        statistics: (B, T) log-probabilities and entropies that the selection saw.
        keep: (B, T) bool, tokens that contribute to the loss.
        method: of the training.
        counted: sums that came with the gradient.
        scopes: of `mask_scope`.
    """
    num_tokens = int(batch.mask.sum())
    shared = max(num_tokens, 1)
    # The paper's for a method without one of its own: its candidates are counted for every method.
    tau_p = float(method.arguments.get("tau_p", TAU_P.default))
    candidates = spurious_candidates(statistics[0], batch.advantages, batch.mask, tau_p)
    entropies = batch.old_entropies[batch.mask].double()
    if num_tokens == 0:
        entropies = torch.zeros(1, dtype=torch.double, device=entropies.device)
    silenced = int((candidates & ~keep).sum()) if method.spec.silenced else 0
    levels = quantiles(entropies, QUANTILES).tolist()
    return StepRecord(
        zero_advantage_fraction=(batch.advantages == 0).float().mean().item(),
        entropy=entropies.mean().item(),
        entropy_quantiles=dict(zip(map(str, QUANTILES), levels, strict=True)),
        num_tokens=num_tokens,
        num_candidates=int(candidates.sum()),
        num_silenced=silenced,
        candidate_fraction=int(candidates.sum()) / shared,
        silenced_fraction=silenced / shared,
        kept_fraction=int(keep.sum()) / shared,
        response_length=batch.mask.sum(dim=1).float().mean().item(),
        mask_scope=scopes,
        clip_low_fraction=counted.clipped_low / shared,
        clip_high_fraction=counted.clipped_high / shared,
        loss=counted.loss,
        kl=counted.kl / shared,
    )


def mask_scope(
    select: Select, mask: Tensor, keep: Tensor, scopes: Mapping[str, list[Tensor]]
) -> dict[str, dict[str, int]]:
    """Return how far the selection would have differed, had its threshold had a smaller scope.

    Args:
        select: the method's selection, of any rows.
        mask: (B, T) bool, response tokens.
        keep: (B, T) bool, what the mini-batch's own threshold keeps.
        scopes: name of a scope to the parts of the mini-batch that would have had thresholds of their
            own; together they hold every row once.

    Returns:
        Per scope, and for the mini-batch itself, `num_dropped`: response tokens left out, and
        `num_different`: tokens on which it and the mini-batch disagree.
    """
    record = {"mini_batch": {"num_dropped": int((mask & ~keep).sum()), "num_different": 0}}
    for name, parts in scopes.items():
        kept = torch.zeros_like(keep)
        for rows in parts:
            kept[rows] = select(rows)
        record[name] = {
            "num_dropped": int((mask & ~kept).sum()),
            "num_different": int((kept != keep).sum()),
        }
    return record
