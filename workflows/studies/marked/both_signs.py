"""S2T's rule for both signs of the advantage."""

from torch import Tensor

from stapo.objective import silence_spurious


def silence_both(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
) -> Tensor:
    """Return the tokens kept by S2T and by its mirror; each has its own candidates and threshold."""
    arguments = (logps, entropies, advantages, mask, tau_p, quantile)
    mirrored = (logps, entropies, -advantages, mask, tau_p, quantile)
    return silence_spurious(*arguments) & silence_spurious(*mirrored)
