"""The record of a mini-batch, with the effect of the scope of the token selection.

B sequences of the whole mini-batch, T response positions; fractions are of all its response tokens.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from stapo.methods import Method, s2t_arguments
from stapo.objective import spurious_candidates
from stapo.objective.quantiles import quantiles
from stapo.records.step import QUANTILES, StepRecord
from stapo.training.minibatch import MiniBatch

Select = Callable[[Tensor], Tensor]
"""(R,) rows of the mini-batch -> (R, T) mask of the tokens kept in a mini-batch of these rows alone."""


class Counted(NamedTuple):
    """Sums over the mini-batch that are computed together with its gradient."""

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
    """Return a record with the fields that are known in the update of a mini-batch.

    Args:
        batch: the whole mini-batch.
        statistics: (B, T) log-probs and entropies that the selection used.
        keep: (B, T) bool, tokens that contribute to the loss.
        method: method of the training.
        counted: sums over the mini-batch that are computed together with its gradient.
        scopes: result of `mask_scope`, None for a selection without threshold.
    """
    num_tokens = int(batch.mask.sum())
    shared = max(num_tokens, 1)
    # Candidates are counted for every method: with its own tau_p, or with that of the study's S2T.
    tau_p = float(s2t_arguments(method)["tau_p"])
    candidates = spurious_candidates(statistics[0], batch.advantages, batch.mask, tau_p)
    entropies = batch.old_entropies[batch.mask].double()
    if num_tokens == 0:
        entropies = torch.zeros(1, dtype=torch.double, device=entropies.device)
    silences = method.spec.silenced or method.is_own
    silenced = int((candidates & ~keep).sum()) if silences else 0
    levels = quantiles(entropies, QUANTILES).tolist()
    mean, largest, changed = rollout_mismatch(batch, tau_p) or (None, None, None)
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
        rollout_mismatch=mean,
        rollout_mismatch_max=largest,
        rollout_changed_fraction=changed,
    )


def rollout_mismatch(batch: MiniBatch, tau_p: float) -> tuple[float, float, float] | None:
    """Return mean and maximum of how far vLLM's log-probs are from the trainer's, and a share; or None.

    The share is that of the candidates which change sides, by vLLM's and by the trainer's probabilities, both
    of the policy of the rollout. Tokens without a log-prob of vLLM are left out; None is without vLLM.
    """
    if batch.rollout_logps is None:
        return None
    known = batch.mask & ~batch.rollout_logps.isnan()
    ours, theirs = (
        spurious_candidates(logps, batch.advantages, known, tau_p)
        for logps in (batch.old_logps, batch.rollout_logps)
    )
    differences = (batch.rollout_logps.double() - batch.old_logps.double())[known].abs()
    if not len(differences):
        return 0.0, 0.0, 0.0
    changed = int((ours ^ theirs).sum()) / max(int((ours | theirs).sum()), 1)
    return differences.mean().item(), differences.max().item(), changed


def mask_scope(
    select: Select, mask: Tensor, keep: Tensor, scopes: Mapping[str, list[Tensor]]
) -> dict[str, dict[str, int]]:
    """Return how much the selection would differ with a threshold of smaller scope.

    Args:
        select: the method's selection, for any rows.
        mask: (B, T) bool, response tokens.
        keep: (B, T) bool, tokens kept with the threshold of the mini-batch.
        scopes: name of a scope -> rows of its parts, each with its own threshold; the parts together
            contain each row once.

    Returns:
        For each scope, and for the mini-batch itself: `num_dropped`, the number of response tokens that are
        not kept, and `num_different`, the number of tokens with another decision than in the mini-batch.
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
