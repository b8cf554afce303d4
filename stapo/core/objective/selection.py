"""Token selections: which response tokens contribute to the loss and to its divisor.

B sequences, T response positions. Selections take `logps` (B, T) of the sampled tokens, `entropies` (B, T) of
the policy in nats, `advantages` (B,) and `mask` (B, T) bool, true on response tokens; they return the tokens
that are *kept*, (B, T) bool, a subset of `mask`, and raise ValueError if shapes do not match. Thresholds are
computed over the whole mini-batch, so all ranks' tokens must be gathered before the call.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Literal

import torch
from torch import Tensor

from stapo.core.objective.resolution import at_resolution
from stapo.core.objective.shapes import check_shapes

Scope = Literal["candidates", "all"]

LARGEST_LOGP = 0.02
"""Log-probability that is more than rounding, which may put that of a certain token above 0."""


def quantiles(values: Tensor, levels: Sequence[float]) -> Tensor:
    """Return quantiles of (n,) values in double precision; torch's has a limit of 2^24 values."""
    ordered = values.double().sort().values
    position = torch.tensor(levels, dtype=torch.double, device=values.device) * (len(ordered) - 1)
    # A level such as 1 - 0.8 is not exact: a position that is whole would be just below it.
    position = position.round(decimals=9)
    low = position.long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], position - low)


def spurious_candidates(logps: Tensor, advantages: Tensor, mask: Tensor, tau_p: float) -> Tensor:
    """Return (B, T) bool: response tokens with A > 0 and exp(logp) < tau_p, both strict.

    Raises:
        ValueError: shapes do not match, or `logps` are no log-probabilities.
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    largest = float(logps.detach().masked_fill(~mask, 0.0).max()) if logps.numel() else 0.0
    if largest > LARGEST_LOGP:
        raise ValueError(
            f"logps: expected log-probabilities, at most 0, found {largest:.3g}; take the logarithm of "
            "probabilities"
        )
    # Double precision, so that a probability close to tau_p is on the same side on every machine.
    return mask & (advantages > 0).unsqueeze(1) & (logps.double().exp() < tau_p)


def spurious_threshold(
    entropies: Tensor, candidates: Tensor, mask: Tensor, quantile: float, scope: Scope
) -> Tensor | None:
    """Return the entropy, () in double precision, below which S2T silences a candidate; None without one.

    Raises:
        ValueError: the scope is unknown.
    """
    if scope not in ("candidates", "all"):
        raise ValueError(f"scope: expected 'candidates' or 'all', found {scope!r}")
    if not candidates.any():
        return None
    pool = candidates if scope == "candidates" else mask
    return quantiles(entropies[pool], [quantile])[0]


def silence_spurious(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
) -> Tensor:
    """Return the tokens kept by S2T.

    Silenced iff A > 0, exp(logp) < tau_p and entropy < threshold, all strict. The threshold is the
    quantile, by linear interpolation, of the entropies of the candidates (A > 0 and exp(logp) < tau_p)
    or of all response tokens. Without a candidate nothing is silenced.

    Raises:
        ValueError: shapes do not match, `logps` are no log-probabilities, or the scope is unknown.

    Source: STAPO v5, Algorithm 1 (scope "candidates", 0.75); v2 is scope "all", 0.80.
    """
    check_shapes(mask=mask, entropies=entropies)
    candidates = spurious_candidates(logps, advantages, mask, tau_p)
    threshold = spurious_threshold(entropies, candidates, mask, quantile, scope)
    if threshold is None:
        return mask.clone()
    return mask & ~(candidates & (entropies.double() < threshold))


def silence_high_entropy(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
) -> Tensor:
    """Return the tokens kept when the candidates of *high* entropy are silenced.

    Silenced iff candidate and entropy strictly above the (1 - quantile) quantile of the entropies of the
    scope.

    Source: STAPO v5, masking ablation; the mirrored threshold is our reading. The high-entropy mask of v1
    to v3 is scope "all", 0.20: above the 80th percentile.
    """
    check_shapes(mask=mask, entropies=entropies)
    candidates = spurious_candidates(logps, advantages, mask, tau_p)
    threshold = spurious_threshold(entropies, candidates, mask, 1 - quantile, scope)
    if threshold is None:
        return mask.clone()
    return mask & ~(candidates & (entropies.double() > threshold))


def silence_spurious_negative(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
) -> Tensor:
    """Return the tokens kept by S2T's rule for A < 0 in place of A > 0.

    Source: ours, a control.
    """
    return silence_spurious(logps, entropies, -advantages, mask, tau_p, quantile, scope)


def silence_random(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    seed: int = 0,
) -> Tensor:
    """Return the tokens kept when round(quantile * n) of the n candidates are silenced at random.

    The same seed silences the same tokens.

    Source: STAPO v5, masking ablation; an exact count instead of a random draw per token is our choice.
    """
    check_shapes(mask=mask, entropies=entropies)
    candidates = spurious_candidates(logps, advantages, mask, tau_p)
    count = round(quantile * int(candidates.sum()))
    return mask & ~drawn(candidates, count, torch.Generator().manual_seed(seed))


def silence_matched(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
    seed: int = 0,
) -> Tensor:
    """Return the tokens kept when as many random tokens with A > 0 are silenced as S2T would silence.

    The same seed silences the same tokens.

    Source: ours, a control.
    """
    s2t = mask & ~silence_spurious(logps, entropies, advantages, mask, tau_p, quantile, scope)
    positive = mask & (advantages > 0).unsqueeze(1)
    return mask & ~drawn(positive, int(s2t.sum()), torch.Generator().manual_seed(seed))


def drawn(among: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a (B, T) bool mask of `count` true positions of a mask, drawn uniformly; at most all of them."""
    # The generator is on the CPU, so that every device draws the same.
    order = torch.randperm(int(among.sum()), generator=generator)
    return chosen(among, order[:count].to(among.device))


def chosen(among: Tensor, which: Tensor) -> Tensor:
    """Return the mask of some true positions of a mask, given by their numbers in row-major order."""
    mask = torch.zeros_like(among)
    mask.view(-1)[among.flatten().nonzero().flatten()[which]] = True
    return mask


def silence_candidates(
    logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, tau_p: float = 0.002
) -> Tensor:
    """Return the tokens kept when every candidate is silenced.

    Source: STAPO v5, JustRL-FullMask.
    """
    check_shapes(mask=mask, entropies=entropies)
    return mask & ~spurious_candidates(logps, advantages, mask, tau_p)


def mean_entropy(entropies: Tensor, mask: Tensor) -> float:
    """Return the mean entropy of the tokens of a mini-batch, rounded as thresholds are; 0 without any."""
    if not mask.any():
        return 0.0
    return float(at_resolution(entropies[mask].detach().double().mean()))


def share_of(distance: float, width: float, largest: float) -> float:
    """Return distance / width, between 0 and the largest share."""
    return min(max(distance / width, 0.0), largest)


def silence_above_entropy(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
    target_entropy: float = 0.12,
    entropy_width: float = 0.05,
) -> Tensor:
    """Return the tokens kept by S2T with a quantile of min(quantile, (H - target) / width), at least 0.

    H is the mean entropy of the mini-batch. At the target and below it, every token is kept.

    Source: ours. The paper names adaptive thresholds as future work.
    """
    check_shapes(mask=mask, entropies=entropies)
    above = mean_entropy(entropies, mask) - target_entropy
    # With a quantile of 0, no entropy is below the threshold.
    share = share_of(above, entropy_width, quantile)
    return silence_spurious(logps, entropies, advantages, mask, tau_p, share, scope)


def silence_towards_entropy(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
    target_entropy: float = 0.12,
    entropy_width: float = 0.05,
    negative_tau_p: float = 0.01,
) -> Tensor:
    """Return the tokens kept by `silence_above_entropy`, or below the target by its mirror in wrong answers.

    There the rule holds for A < 0 and tokens rarer than `negative_tau_p`, with a quantile of
    min(quantile, (target - H) / width): silencing them raises the entropy.

    Source: ours.
    """
    check_shapes(mask=mask, entropies=entropies)
    above = mean_entropy(entropies, mask) - target_entropy
    share = share_of(abs(above), entropy_width, quantile)
    signed, rare = (advantages, tau_p) if above >= 0.0 else (-advantages, negative_tau_p)
    return silence_spurious(logps, entropies, signed, mask, rare, share, scope)


def silence_in_updates(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: Scope = "candidates",
    first_update: float = 1,
    last_update: float = 40,
    step: int = 1,
) -> Tensor:
    """Return the tokens kept by S2T in some updates, counted from 1, and every token in the others.

    Source: ours, a control.
    """
    if first_update <= step <= last_update:
        return silence_spurious(logps, entropies, advantages, mask, tau_p, quantile, scope)
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return mask.clone()


def keep_high_entropy(
    logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, fraction: float = 0.2
) -> Tensor:
    """Return the k = ceil(fraction * n) of the n response tokens with the highest entropy.

    Exactly k tokens are kept. Of tokens with the lowest entropy that is kept, the first of every response
    comes first, then the second of every response, and so on: ties fall evenly over the responses.

    Source: 20-Entropy (arXiv 2506.01939); the order of ties is our choice.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    count = int(mask.sum())
    # 0.55 * 100 is 55.00000000000001 in floating point, which must not add a token.
    kept = min(count, ceil(round(fraction * count, 9)))
    values = entropies[mask]
    lowest = values.sort(descending=True).values[kept - 1 : kept] if kept else values[:0]
    # 1 for the first tied token of a response, 2 for the second; 0 if a token is not tied.
    tied = torch.isin(entropies, lowest) & mask
    turns = (tied.cumsum(dim=1) * tied)[mask]
    # Both sorts are stable: by entropy, then by turn, then by row.
    order = turns.sort(stable=True).indices
    order = order[values[order].sort(descending=True, stable=True).indices]
    return chosen(mask, order[:kept])


def keep_all(logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return every response token (GRPO, JustRL)."""
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return mask.clone()


def clip_cov(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    covariance_low: float = 1.0,
    covariance_high: float = 5.0,
    dropped_share: float = 2e-4,
    seed: int = 0,
) -> Tensor:
    """Return the tokens kept when a few random ones with a covariance between two bounds are dropped.

    They are max(1, floor(share * n)) of the n tokens of the mini-batch, or all between the bounds if fewer.

    Source: Clip-Cov (arXiv 2505.22617). That it draws among unclipped tokens has no effect with its own clip
    of 1 and is left out.
    """
    check_shapes(mask=mask, entropies=entropies)
    covariance = covariances(logps, advantages, mask)
    between = mask & (covariance > covariance_low) & (covariance < covariance_high)
    count = max(1, int(dropped_share * int(mask.sum())))
    return mask & ~drawn(between, count, torch.Generator().manual_seed(seed))


def covariances(logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return (A - mean A) (logp - mean logp), in double precision, 0 outside the mask.

    The means are over the tokens of the mini-batch. Values are rounded to multiples of 2^-10, so that
    numerical noise does not decide between tokens.

    Source: arXiv 2505.22617, eq. 10.
    """
    check_shapes(mask=mask, logps=logps, advantages=advantages)
    values = torch.where(mask, logps, 0.0).double()
    weights = torch.where(mask, advantages.unsqueeze(1), 0.0).double()
    count = mask.sum().clamp(min=1)
    products = (weights - weights.sum() / count) * (values - values.sum() / count)
    return torch.where(mask, at_resolution(products), 0.0)


def clip_b(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    score_deviations: float = 2.5,
) -> Tensor:
    """Return the tokens kept when those with A < 0 and a score p (H + log p) far below the mean are dropped.

    Far is more than `score_deviations` (population) standard deviations of the scores of all tokens. No
    score is below -0.224 (H is at least the entropy of p and 1 - p), so that none is far enough if the mean
    is less than that many deviations above it.

    Source: Clip_B (arXiv 2602.03392), its authors' code; there scores and mean are those of a whole rollout.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    scores = at_resolution(logps.exp() * (entropies + logps))
    mean = scores[mask].mean()
    lowest = mean - score_deviations * (scores[mask] - mean).square().mean().sqrt()
    return mask & ~((advantages < 0).unsqueeze(1) & (scores < lowest))


SELECTIONS: dict[str, Callable[..., Tensor]] = {
    "keep_all": keep_all,
    "silence_spurious": silence_spurious,
    "keep_high_entropy": keep_high_entropy,
    "silence_high_entropy": silence_high_entropy,
    "silence_random": silence_random,
    "silence_spurious_negative": silence_spurious_negative,
    "silence_matched": silence_matched,
    "silence_candidates": silence_candidates,
    "silence_above_entropy": silence_above_entropy,
    "silence_towards_entropy": silence_towards_entropy,
    "silence_in_updates": silence_in_updates,
    "clip_cov": clip_cov,
    "clip_b": clip_b,
}
"""Name to function, all with the leading arguments (logps, entropies, advantages, mask)."""
