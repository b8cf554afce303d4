"""The record of an update: what its mini-batch, selection and passes say in numbers."""

import torch
from torch import Tensor

from stapo.core.loss import LossSums
from stapo.core.methods import Method, s2t_arguments
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import spurious_candidates
from stapo.core.objective.selection import quantiles
from stapo.core.step_record import QUANTILES, StepRecord


def measured(
    batch: MiniBatch,
    logps: Tensor,
    keep: Tensor,
    method: Method,
    sums: LossSums[float],
    tau_p: float | None,
) -> StepRecord:
    """Return a record of what is known here, by the log-probs that selected and the sums over the batch."""
    num_tokens = int(batch.mask.sum())
    shared = max(num_tokens, 1)
    tau_p = float(s2t_arguments(method)["tau_p"]) if tau_p is None else tau_p
    candidates = spurious_candidates(logps, batch.advantages, batch.mask, tau_p)
    silences = method.part("selection").silences_candidates or method.is_own
    silenced = int((candidates & ~keep).sum()) if silences else 0
    entropies = batch.old_entropies[batch.mask].double() if num_tokens else torch.zeros(1).double()
    levels = quantiles(entropies, QUANTILES).tolist()
    lengths = batch.mask.sum(dim=1) if batch.response_lengths is None else batch.response_lengths
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
        response_length=lengths.float().mean().item(),
        clip_low_fraction=sums.clipped_low / shared,
        clip_high_fraction=sums.clipped_high / shared,
        touched_fraction=sums.touched / shared,
        touched_weight=sums.slope_changes / sums.plain_slopes if sums.plain_slopes else 0.0,
        loss=sums.loss,
        kl=sums.kl / shared,
        rollout_mismatch=mean,
        rollout_mismatch_max=largest,
        rollout_changed_fraction=changed,
    )


def rollout_mismatch(batch: MiniBatch, tau_p: float) -> tuple[float, float, float] | None:
    """Return mean and maximum difference of the rollout's log-probs from the trainer's, and a share; or None.

    The share is that of the candidates which change sides, by the rollout's and the trainer's probabilities,
    both of the policy of the rollout. Tokens without a log-prob of the rollout are left out.
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
