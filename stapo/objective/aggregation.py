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


def group_token_mean(values: Tensor, keep: Tensor, group_size: int) -> Tensor:
    """Return the mean over groups of the mean over the kept tokens of each group.

    A group without any token is left out; 0 where no group has one.

    Args:
        values: (B, T) values per token.
        keep: (B, T) bool, the tokens that contribute to sum and divisors.
        group_size: responses per prompt, consecutive rows.

    Raises:
        ValueError: shapes that do not fit, or groups that are not all of that size.

    Source: STAPO, objective, read to the letter: the divisor stands inside the expectation over prompts.
    """
    check_shapes(keep=keep, values=values)
    if len(keep) % group_size:
        raise ValueError(f"group_size: {len(keep)} responses are no multiple of {group_size}")
    counts = keep.sum(dim=1).view(-1, group_size).sum(dim=1)
    sums = torch.where(keep, values, 0.0).sum(dim=1).view(-1, group_size).sum(dim=1)
    return (sums / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over responses of the mean over each response's tokens.

    A response without any token is left out; 0 where no response has one.

    Args:
        values: (B, T) values per token.
        mask: (B, T) bool, the tokens that contribute.

    Source: DeepSeekMath, eq. 3. Over kept tokens it is also what a token mean becomes that is taken within
    each micro-batch of one response, as veRL may have taken STAPO's.
    """
    check_shapes(mask=mask, values=values)
    lengths = mask.sum(dim=1)
    means = torch.where(mask, values, 0.0).sum(dim=1) / lengths.clamp(min=1)
    return means.sum() / (lengths > 0).sum().clamp(min=1)
