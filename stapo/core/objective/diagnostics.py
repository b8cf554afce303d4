"""The norm of a token's gradient at the logits, and its bounds from probability and entropy.

B sequences, T response positions. All tables are (B, T): `weights`, ratio * A inside the trust region and 0
where clipped; `logps` of the sampled tokens; `entropies` of the policy in nats.
"""

from math import log

import torch
from torch import Tensor

from stapo.core.objective.shapes import check_shapes


def logit_gradient_norm_sq(weights: Tensor, logps: Tensor, collision: Tensor) -> Tensor:
    """Return the exact squared norm of the surrogate's gradient with respect to a token's logits.

    It is w^2 (1 - 2 p + sum_v p_v^2); the sum over the vocabulary is `collision`.

    Source: STAPO v5, gradient-norm theorem.
    """
    check_shapes(weights=weights, logps=logps, collision=collision)
    # As p -> 1, 1 - 2 p + sum cancels to 0: the token's own part, at least half, is computed by itself.
    others = (collision - (2 * logps).exp()).clamp(min=0)
    return weights.square() * (torch.expm1(logps).square() + others)


def gradient_norm_bounds(
    weights: Tensor, logps: Tensor, entropies: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Return lower and upper bounds of `logit_gradient_norm_sq` that need only probability and entropy.

    They are w^2 (1 - 2 p + e^-H) and w^2 (2 - 2 p - C H^2), where C = (V - 1) / (V ln^2 V).

    Raises:
        ValueError: shapes do not match, or `vocab_size` is below 2.

    Source: STAPO v5, gradient-norm theorem.
    """
    check_shapes(weights=weights, logps=logps, entropies=entropies)
    if vocab_size < 2:
        raise ValueError(f"vocab_size: expected at least 2, found {vocab_size}")
    squared, probabilities = weights.square(), logps.exp()
    curvature = (vocab_size - 1) / (vocab_size * log(vocab_size) ** 2)
    lower = squared * (1 - 2 * probabilities + torch.exp(-entropies))
    upper = squared * (2 - 2 * probabilities - curvature * entropies.square())
    return lower, upper
