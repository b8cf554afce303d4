"""Quantiles by linear interpolation."""

from collections.abc import Sequence

import torch
from torch import Tensor


def quantiles(values: Tensor, levels: Sequence[float]) -> Tensor:
    """Return quantiles in double precision, like torch.quantile but without its limit of 2^24 values.

    Args:
        values: (n,) values, n at least 1.
        levels: levels of the quantiles, in [0, 1].
    """
    ordered = values.double().sort().values
    position = torch.tensor(levels, dtype=torch.double, device=values.device) * (len(ordered) - 1)
    low = position.long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], position - low)
