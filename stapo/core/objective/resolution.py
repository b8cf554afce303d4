"""The resolution of what thresholds are compared with."""

from torch import Tensor

ENTROPY_RESOLUTION = 2.0**-10
"""Resolution in nats, our choice: a thousand times the rounding error of single precision, and far below
any meaningful difference of thresholds."""


def at_resolution(entropies: Tensor, resolution: float = ENTROPY_RESOLUTION) -> Tensor:
    """Return entropies in double precision, rounded to the nearest multiple of a resolution.

    Tokens with the same context, such as the first ones of a group's responses, have the same entropy.
    With another order of summation (another micro-batch, number of ranks, or CPU) their entropies differ by
    rounding, and rounding would decide which of them a threshold removes. Entropies that are equal at this
    resolution, a power of two, are ties, which every selection resolves by strict comparisons, or turns.
    """
    return (entropies.double() / resolution).round() * resolution
