"""The tokens of a mini-batch that each arm silences. B sequences, T response positions."""

from dataclasses import replace

import torch
from torch import Tensor

from stapo.core.methods import Method
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import at_resolution, spurious_candidates
from stapo.core.objective.selection import chosen, drawn
from stapo.core.update import select
from stapo.suite.records.arms import NOTHING, SILENCED


def candidates_of(batch: MiniBatch, tau_p: float) -> Tensor:
    """Return the (B, T) bool mask of tokens with A > 0 and a probability below tau_p."""
    return spurious_candidates(batch.old_logps, batch.advantages, batch.mask, tau_p)


def silenced_by_arm(batch: MiniBatch, method: Method, tau_p: float, seed: int) -> dict[str, Tensor]:
    """Return the (B, T) bool mask of the tokens that each arm of `ARMS` silences.

    S2T's threshold is strict: it silences no candidate with the entropy of the threshold, so that it may
    silence fewer than the quantile says. The other arms silence exactly as many tokens as S2T does, or all
    that there are. Of equal entropies, the first ones in row-major order are silenced. The mini-batch is the
    first of a rollout, so that the behaviour policy is the current one.
    """
    statistics = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    silenced = batch.mask & ~select(method, *statistics, seed)
    count = int(silenced.sum())
    candidates = candidates_of(batch, tau_p)
    positive, negative = (
        batch.mask & sign.unsqueeze(1) for sign in (batch.advantages > 0, batch.advantages < 0)
    )
    rare_negative = candidates_of(replace(batch, advantages=-batch.advantages), tau_p)
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
