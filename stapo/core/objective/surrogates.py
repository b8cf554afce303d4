"""Surrogates per token, to be maximised, and the KL penalty.

B sequences, T response positions; log-probabilities in nats; ratio = exp(logps - old_logps). STAPO and its
baselines have `clipped_surrogate`. The functions of `SURROGATES` take `logps` (B, T) with gradient,
`old_logps` (B, T), `advantages` (B,) and `mask` (B, T) bool, return (B, T) values of which the caller ignores
those outside the mask, and raise ValueError if shapes do not match.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from stapo.core.objective.shapes import check_shapes


def ratios(logps: Tensor, old_logps: Tensor) -> Tensor:
    """Return importance ratios, finite: infinity times an advantage of 0 would be nan."""
    check_shapes(logps=logps, old_logps=old_logps)
    return torch.exp((logps - old_logps).clamp(max=log(torch.finfo(logps.dtype).max) - 2))


def clipped_surrogate(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """Return min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) per token, to be maximised.

    With `dual_clip`, the value of a token with A < 0 is at least dual_clip * A. `old_logps` are those of the
    policy that produced the responses. The result is (B, T); ignore positions outside the response.

    Raises:
        ValueError: shapes do not match, or `dual_clip` is not above 1.

    Source: STAPO, objective (both revisions); PPO's clip; dual clip: arXiv 1912.09729, eq. 5.
    """
    check_shapes(logps=logps, advantages=advantages)
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip: expected a number above 1, found {dual_clip}")
    ratio, weights = ratios(logps, old_logps), advantages.unsqueeze(1)
    surrogate = torch.min(ratio * weights, ratio.clamp(1 - clip_low, 1 + clip_high) * weights)
    if dual_clip is None:
        return surrogate
    return torch.where(weights < 0, torch.max(surrogate, dual_clip * weights), surrogate)


def kl_k3(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Return (B, T) k3 estimates of KL(policy || reference) in nats, unbiased and never negative.

    Source: DeepSeekMath, eq. 4.
    """
    check_shapes(logps=logps, ref_logps=ref_logps)
    log_ratio = ref_logps - logps
    return torch.exp(log_ratio) - log_ratio - 1


def _clipped(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, **clips: float
) -> Tensor:
    check_shapes(mask=mask, logps=logps)
    return clipped_surrogate(logps, old_logps, advantages, **clips)


def unclipped(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return ratio A.

    Source: KL-Cov (arXiv 2505.22617), whose penalty takes the place of the clip.
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    return ratios(logps, old_logps) * advantages.unsqueeze(1)


def cispo(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, ratio_cap: float = 5.0
) -> Tensor:
    """Return min(ratio, cap) A logp with a constant weight: no token loses its gradient.

    Source: CISPO (arXiv 2506.13585), eq. 4, without a lower bound as there. The cap is that of the ratio
    itself, as in TRL; veRL's is 1 + clip_high. The paper names none; 5 is TRL's recommendation.
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    weights = ratios(logps, old_logps).clamp(max=ratio_cap).detach()
    # Behind a response there may be nan, with which the gradient would be nan.
    return torch.where(mask, weights * advantages.unsqueeze(1), 0.0) * logps


def gspo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return min(s A, clip(s) A) at every token of a response, where s = exp(mean of log ratio over it).

    Source: GSPO (arXiv 2507.18071), eqs. 5 and 7.
    """
    check_shapes(mask=mask, logps=logps, old_logps=old_logps, advantages=advantages)
    # Behind a response there may be anything, also infinity.
    differences = torch.where(mask, logps - old_logps, 0.0)
    means = differences.sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    log_ratios = means.unsqueeze(1), torch.zeros_like(means).unsqueeze(1)
    return clipped_surrogate(*log_ratios, advantages, clip_low, clip_high).expand_as(logps)


def sapo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    gate_positive: float = 1.0,
    gate_negative: float = 1.05,
) -> Tensor:
    """Return 4 / t * sigmoid(t (ratio - 1)) A, where t depends on the sign of A.

    Source: SAPO (arXiv 2511.20347).
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    weights = advantages.unsqueeze(1)
    sharpness = torch.where(weights > 0, torch.full_like(weights, gate_positive), gate_negative)
    return 4 / sharpness * torch.sigmoid(sharpness * (ratios(logps, old_logps) - 1)) * weights


def ce_gppo(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float,
    clip_high: float,
    kept_low: float = 0.75,
    kept_high: float = 1.0,
) -> Tensor:
    """Return ratio A; clipped tokens keep a gradient of constant size.

    It is kept_low (1 - clip_low) A for A < 0 and kept_high (1 + clip_high) A for A > 0, instead of ratio A.

    Source: CE-GPPO (arXiv 2509.20712); both 1 is GPPO.
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    ratio, weights = ratios(logps, old_logps), advantages.unsqueeze(1)
    # Not ratio / ratio, which may underflow to 0.
    unit_ratio = ratios(logps, logps.detach())
    low = (weights < 0) & (ratio < 1 - clip_low)
    high = (weights > 0) & (ratio > 1 + clip_high)
    factor = torch.where(low, kept_low * (1 - clip_low) * unit_ratio, ratio)
    return torch.where(high, kept_high * (1 + clip_high) * unit_ratio, factor) * weights


def dppo(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, divergence: float = 0.15
) -> Tensor:
    """Return ratio A, without gradient where an update would move p further from p_old than `divergence`.

    That is A > 0 and p - p_old > divergence, or A < 0 and p - p_old < -divergence.

    Source: DPPO with total variation (arXiv 2602.04879).
    """
    check_shapes(mask=mask, logps=logps, old_logps=old_logps, advantages=advantages)
    weights = advantages.unsqueeze(1)
    moved = logps.detach().exp() - old_logps.exp()
    values = ratios(logps, old_logps) * weights
    return torch.where(moved * weights.sign() > divergence, values.detach(), values)


SURROGATES: dict[str, Callable[..., Tensor]] = {
    "clipped": _clipped,
    "unclipped": unclipped,
    "cispo": cispo,
    "gspo": gspo,
    "sapo": sapo,
    "ce_gppo": ce_gppo,
    "dppo": dppo,
}
"""Name to function, all with the leading arguments (logps, old_logps, advantages, mask)."""
