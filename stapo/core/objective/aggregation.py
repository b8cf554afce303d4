"""Aggregations of values per token to one number, named after their divisor.

B sequences, T response positions of the whole mini-batch.
"""

from typing import Literal

import torch
from torch import Tensor

from stapo.core.objective.shapes import check_shapes

Aggregation = Literal["token_mean", "group_token_mean", "sequence_mean", "constant_length"]


def token_weights(
    keep: Tensor,
    aggregation: Aggregation,
    group_size: int = 1,
    dtype: torch.dtype = torch.float32,
    length: int = 1,
) -> Tensor:
    """Return the weight of each token: the sum of weights x values is the aggregation of that name.

    This sum can be computed separately for each micro-batch and rank. A group or response without kept
    tokens is left out of the mean over groups or responses. `group_size` (responses per prompt, consecutive
    rows) is only used by `group_token_mean`, `length` (tokens per response) only by `constant_length`.

    Returns:
        (B, T) weights, 0 where `keep` is false. Values elsewhere may be inf or nan: remove them first.

    Raises:
        ValueError: shapes do not match, or B is not a multiple of `group_size`.

    Source: sequence_mean: DeepSeekMath, eq. 3; a token mean within each micro-batch of one response, which
    veRL may have used for STAPO, is the same. group_token_mean: STAPO, objective, read literally: the divisor
    is inside the expectation over prompts.
    """
    check_shapes(keep=keep)
    if aggregation == "group_token_mean" and len(keep) % group_size:
        raise ValueError(f"group_size: {len(keep)} responses are not a multiple of {group_size}")
    if aggregation == "constant_length":
        return keep.to(dtype) / (max(len(keep), 1) * length)
    rows = {"token_mean": max(len(keep), 1), "group_token_mean": group_size, "sequence_mean": 1}
    size = rows[aggregation]
    counts = keep.sum(dim=1).view(-1, size).sum(dim=1)
    num_means = (counts > 0).sum().clamp(min=1)
    weights = counts.clamp(min=1).to(dtype).reciprocal() / num_means
    return keep * weights.repeat_interleave(size).unsqueeze(1)


def token_mean(values: Tensor, keep: Tensor) -> Tensor:
    """Return the mean of (B, T) values over the kept tokens of the mini-batch, 0 if no token is kept.

    Source: STAPO, objective: the divisor counts the tokens that are not silenced.
    """
    check_shapes(keep=keep, values=values)
    # Masked positions may contain inf or nan, so they are removed before the multiplication by 0.
    kept = torch.where(keep, values, 0.0)
    # At least single precision: in half precision, the weight of one of 10^8 tokens is 0.
    dtype = torch.promote_types(kept.dtype, torch.float32)
    weights = token_weights(keep, "token_mean", dtype=dtype)
    return (kept * weights).sum().to(kept.dtype)
