"""The clipped surrogate and the KL penalty per token.

B sequences, T response positions; log-probabilities in nats.
"""

from math import log

import torch
from torch import Tensor

from stapo.objective.shapes import check_shapes


def clipped_surrogate(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """Return min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) per token, to be maximised.

    With `dual_clip`, the value of a token with A < 0 is at least dual_clip * A.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the policy.
        old_logps: (B, T) the same under the policy that produced the responses; no gradient.
        advantages: (B,) one advantage per response.
        clip_low: epsilon_low.
        clip_high: epsilon_high.
        dual_clip: constant above 1, or None.

    Returns:
        (B, T) surrogate; the caller must ignore positions outside the response.

    Raises:
        ValueError: shapes do not match, or `dual_clip` is not above 1.

    Source: STAPO, objective (both revisions); PPO's clip; dual clip: arXiv 1912.09729, eq. 5.
    """
    check_shapes(logps=logps, old_logps=old_logps, advantages=advantages)
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip: expected a number above 1, found {dual_clip}")
    weights = advantages.unsqueeze(1)
    # Keep the ratio finite: infinity times an advantage of 0 would be nan.
    largest = log(torch.finfo(logps.dtype).max) - 2
    ratio = torch.exp((logps - old_logps).clamp(max=largest))
    surrogate = torch.min(ratio * weights, ratio.clamp(1 - clip_low, 1 + clip_high) * weights)
    if dual_clip is None:
        return surrogate
    return torch.where(weights < 0, torch.max(surrogate, dual_clip * weights), surrogate)


def kl_k3(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || reference) per token, which is unbiased and never negative.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the policy.
        ref_logps: (B, T) the same under the reference; no gradient.

    Returns:
        (B, T) estimates in nats.

    Source: DeepSeekMath, eq. 4.
    """
    check_shapes(logps=logps, ref_logps=ref_logps)
    log_ratio = ref_logps - logps
    return torch.exp(log_ratio) - log_ratio - 1
