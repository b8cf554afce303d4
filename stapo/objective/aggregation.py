"""From values per token to one number; the divisor is in the name.

B sequences, T response positions. Everything here is of the whole mini-batch.
"""

import torch
from torch import Tensor

from stapo.objective.shapes import check_shapes


def token_mean(values: Tensor, keep: Tensor) -> Tensor:
    """Return the mean over the kept tokens of the mini-batch; 0 where none is kept.

    Args:
        values: (B, T) values per token.
        keep: (B, T) bool, the tokens that contribute to sum and divisor.

    Source: STAPO, objective: the divisor counts the tokens that are not silenced.
    """
    check_shapes(keep=keep, values=values)
    return torch.where(keep, values, 0.0).sum() / keep.sum().clamp(min=1)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over responses of the mean over each response's tokens.

    A response without any token is left out; 0 where no response has one.

    Args:
        values: (B, T) values per token.
        mask: (B, T) bool, the tokens that contribute.

    Source: DeepSeekMath, eq. 3.
    """
    check_shapes(mask=mask, values=values)
    lengths = mask.sum(dim=1)
    means = torch.where(mask, values, 0.0).sum(dim=1) / lengths.clamp(min=1)
    return means.sum() / (lengths > 0).sum().clamp(min=1)
