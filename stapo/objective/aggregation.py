"""From values per token to one number; the divisor is in the name.

B sequences, T response positions. Everything here is of the whole mini-batch.
"""

from typing import Literal

import torch
from torch import Tensor

from stapo.objective.shapes import check_shapes

Aggregation = Literal["token_mean", "group_token_mean", "sequence_mean"]


def token_weights(
    keep: Tensor, aggregation: Aggregation, group_size: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return what each token weighs: the sum of weights x values is the aggregation of that name.

    Such a sum can be taken micro-batch by micro-batch and rank by rank. Whoever is without any kept token
    (the mini-batch, a group, a response) is left out of the mean over them.

    Args:
        keep: (B, T) bool, the tokens that contribute to sum and divisor.
        aggregation: whose kept tokens a divisor counts: of the mini-batch, of a group, of a response.
        group_size: responses per prompt, consecutive rows; only `group_token_mean` asks for it.
        dtype: of the weights.

    Returns:
        (B, T) weights, 0 where `keep` is false.

    Raises:
        ValueError: shapes that do not fit, or groups that are not all of that size.
    """
    check_shapes(keep=keep)
    if aggregation == "group_token_mean" and len(keep) % group_size:
        raise ValueError(f"group_size: {len(keep)} responses are no multiple of {group_size}")
    rows = {"token_mean": max(len(keep), 1), "group_token_mean": group_size, "sequence_mean": 1}
    size = rows[aggregation]
    counts = keep.sum(dim=1).view(-1, size).sum(dim=1)
    num_means = (counts > 0).sum().clamp(min=1)
    weights = counts.clamp(min=1).to(dtype).reciprocal() / num_means
    return keep * weights.repeat_interleave(size).unsqueeze(1)


def token_mean(values: Tensor, keep: Tensor) -> Tensor:
    """Return the mean over the kept tokens of the mini-batch; 0 where none is kept.

    Args:
        values: (B, T) values per token.
        keep: (B, T) bool, the tokens that contribute to sum and divisor.

    Source: STAPO, objective: the divisor counts the tokens that are not silenced.
    """
    check_shapes(keep=keep, values=values)
    return _weighted_sum(values, keep, "token_mean")


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
    return _weighted_sum(values, keep, "group_token_mean", group_size)


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
    return _weighted_sum(values, mask, "sequence_mean")


def _weighted_sum(
    values: Tensor, keep: Tensor, aggregation: Aggregation, group_size: int = 1
) -> Tensor:
    # A position that does not count may hold anything: out before it meets a weight of 0.
    kept = torch.where(keep, values, 0.0)
    return (kept * token_weights(keep, aggregation, group_size, kept.dtype)).sum()
