"""The arms of an intervention: which tokens of one mini-batch each of them silences.

B sequences, T response positions.
"""

import torch
from torch import Tensor

from stapo.methods import TAU_P, Method
from stapo.objective import at_resolution, spurious_candidates
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.training.minibatch import MiniBatch
from stapo.training.update import select


def candidates_of(batch: MiniBatch, method: Method) -> Tensor:
    """Return the (B, T) bool mask of tokens with A > 0 and a probability below the method's tau_p."""
    tau_p = float(method.arguments.get("tau_p", TAU_P.default))
    return spurious_candidates(batch.old_logps, batch.advantages, batch.mask, tau_p)


def kept_by_arm(batch: MiniBatch, method: Method, seed: int) -> dict[str, Tensor]:
    """Return the (B, T) bool mask of the tokens that each arm of `ARMS` keeps.

    S2T's threshold is strict: it silences no candidate with the entropy of the threshold, so that it may
    silence fewer than the quantile says. The other arms silence exactly as many tokens as S2T does. Of equal
    entropies, `high_entropy` silences the first ones in row-major order.

    Args:
        batch: the first mini-batch of a rollout, so that the behaviour policy is the current one.
        method: method whose selection is S2T here; it silences candidates only.
        seed: seed of the random sets.
    """
    statistics = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    silenced = batch.mask & ~select(method, *statistics, seed)
    count = int(silenced.sum())
    candidates = candidates_of(batch, method)
    positive = batch.mask & (batch.advantages > 0).unsqueeze(1)
    generator = torch.Generator().manual_seed(seed)
    sets = {
        NOTHING: torch.zeros_like(silenced),
        SILENCED: silenced,
        "random_candidates": drawn(candidates, count, generator),
        "random_positive": drawn(positive, count, generator),
        "high_entropy": highest(candidates, at_resolution(batch.old_entropies), count),
    }
    return {arm: batch.mask & ~sets[arm] for arm in ARMS}


def drawn(among: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a (B, T) bool mask of `count` true positions of a mask, drawn uniformly; at most all of them.

    Args:
        among: (B, T) bool.
        count: number of positions.
        generator: generator on the CPU, so that every device draws the same.
    """
    places = among.nonzero()
    order = torch.randperm(len(places), generator=generator).to(places.device)[:count]
    return _mask_of(places[order], among)


def highest(among: Tensor, values: Tensor, count: int) -> Tensor:
    """Return a (B, T) bool mask of the `count` true positions of a mask with the largest values."""
    places = among.nonzero()
    order = torch.sort(values[among], descending=True, stable=True).indices[:count]
    return _mask_of(places[order], among)


def _mask_of(places: Tensor, like: Tensor) -> Tensor:
    found = torch.zeros_like(like)
    found[places[:, 0], places[:, 1]] = True
    return found
