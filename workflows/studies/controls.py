"""Selections of the study `marked` that are no method of a paper: controls of S2T, by the same counts."""

import torch
from torch import Tensor

from stapo.objective import silence_spurious
from stapo.objective.selection import drawn


def silence_matched(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    seed: int = 0,
) -> Tensor:
    """Keep all but as many random tokens with A > 0 as S2T silences; the same seed, the same tokens."""
    kept = silence_spurious(logps, entropies, advantages, mask, tau_p, quantile)
    positive, count = mask & (advantages > 0).unsqueeze(1), int((mask & ~kept).sum())
    return mask & ~drawn(positive, count, torch.Generator().manual_seed(seed))


def silence_mirror(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
) -> Tensor:
    """Keep all but rare tokens of low entropy with A < 0: S2T in wrong answers instead of right ones."""
    return silence_spurious(logps, entropies, -advantages, mask, tau_p, quantile)
