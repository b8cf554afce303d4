"""Diagnostics of tokens: the norm of their gradient at the logits, and their probability and entropy.

B sequences, T response positions; entropies in nats. `weights` are ratio * A inside the trust region
and 0 where clipped.
"""

from math import log

import torch
from torch import Tensor

from stapo.objective.shapes import check_shapes


def logit_gradient_norm_sq(weights: Tensor, logps: Tensor, collision: Tensor) -> Tensor:
    """Return the exact squared norm of the surrogate's gradient with respect to a token's logits.

    Args:
        weights: (B, T) ratio * A, 0 where clipped.
        logps: (B, T) log-probabilities of the sampled tokens.
        collision: (B, T) sum over the vocabulary of the squared probabilities.

    Returns:
        (B, T) w^2 (1 - 2 p + sum_v p_v^2).

    Source: STAPO v5, gradient-norm theorem.
    """
    check_shapes(weights=weights, logps=logps, collision=collision)
    return weights.square() * (1 - 2 * logps.exp() + collision)


def gradient_norm_bounds(
    weights: Tensor, logps: Tensor, entropies: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Return lower and upper bounds of `logit_gradient_norm_sq` that need only probability and entropy.

    Args:
        weights: (B, T) ratio * A, 0 where clipped.
        logps: (B, T) log-probabilities of the sampled tokens.
        entropies: (B, T) entropies of the policy.
        vocab_size: number of logits, at least 2.

    Returns:
        Two (B, T) tensors: w^2 (1 - 2 p + e^-H) and w^2 (2 - 2 p - C H^2), C = (V - 1) / (V ln^2 V).

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


def token_quadrants(
    logps: Tensor, entropies: Tensor, mask: Tensor, tau_p: float, tau_h: float
) -> Tensor:
    """Return each token's quadrant of probability and entropy.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens.
        entropies: (B, T) entropies of the policy.
        mask: (B, T) bool, true on response tokens.
        tau_p: probability below which a token is of low probability, strict.
        tau_h: entropy below which it is of low entropy, strict.

    Returns:
        (B, T) int64: 0 low p, low H; 1 low p, high H; 2 high p, low H; 3 high p, high H; -1 outside `mask`.

    Source: STAPO, quadrant analysis.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies)
    high_probability = (logps.double().exp() >= tau_p).long()
    high_entropy = (entropies >= tau_h).long()
    return torch.where(mask, 2 * high_probability + high_entropy, -1)
