"""Token weights: factors of the surrogate of each token, which are in no divisor.

B sequences, T response positions. All functions take the behaviour policy's `logps` and `entropies` (B, T),
`advantages` (B,) and `mask` (B, T) bool of the whole mini-batch, return (B, T) factors that are 1 where
nothing changes, and raise ValueError if shapes do not match. What they compare with a threshold is rounded
as entropies are (`stapo.core.objective.at_resolution`).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from stapo.core.objective.resolution import at_resolution
from stapo.core.objective.selection import quantiles
from stapo.core.objective.shapes import check_shapes


def unweighted(logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return 1 for every token."""
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return torch.ones_like(logps)


def advantage_reweighting(
    logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, alpha: float = 0.2
) -> Tensor:
    """Return alpha p + 1 - alpha: rare tokens count less (alpha < 0: more), with either sign of A.

    Source: advantage reweighting (arXiv 2505.12929), eq. 8; negative: arXiv 2603.22117, its authors' code.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return torch.where(mask, alpha * logps.exp() + 1 - alpha, 1.0)


def stare(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    surprising_share: float = 0.1,
    amplification: float = 1.1,
    entropy_gate: float = 0.3,
) -> Tensor:
    """Return a factor for the least likely tokens with A > 0, while the mean entropy is below the gate.

    They are those below the quantile of the log-probabilities of tokens with A > 0, strict.

    Source: STARE, variant O1 (arXiv 2606.19236).
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    weights, positive = torch.ones_like(logps), mask & (advantages > 0).unsqueeze(1)
    if not positive.any() or entropies[mask].double().mean() >= entropy_gate:
        return weights
    rounded = at_resolution(logps)
    (threshold,) = quantiles(rounded[positive], [surprising_share])
    return torch.where(positive & (rounded < threshold), amplification, weights)


WEIGHTINGS: dict[str, Callable[..., Tensor]] = {
    "none": unweighted,
    "advantage_reweighting": advantage_reweighting,
    "stare": stare,
}
"""Name to function, all with the leading arguments (logps, entropies, advantages, mask)."""
