"""The objective as plain loops in double precision, written directly from the formulas.

A second, independent implementation for comparison with `stapo.core.objective`: only lists and `math`, no
tensors, and no imports from `stapo`. B sequences, T response positions; entropies and log-probabilities
in nats. A (B, T) quantity is a list of B rows of T numbers; `mask` and `keep` are lists of rows of bools.
"The mini-batch" is everything that is passed in one call.
"""

import math
from collections.abc import Callable
from functools import partial

Row = list[float]
Matrix = list[Row]
Bools = list[list[bool]]


def safe_exp(x: float) -> float:
    """Return e^x, or infinity if `math.exp` overflows."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def positions(mask: Bools) -> list[tuple[int, int]]:
    """Return the true positions in row-major order."""
    return [(b, t) for b, row in enumerate(mask) for t, true in enumerate(row) if true]


def without(mask: Bools, silenced: set[tuple[int, int]]) -> Bools:
    """Return `mask` with the silenced positions set to false."""
    return [
        [true and (b, t) not in silenced for t, true in enumerate(row)]
        for b, row in enumerate(mask)
    ]


def surrogate_value(
    logp: float, old: float, advantage: float, low: float, high: float, dual: float | None = None
) -> float:
    """Return min(rho A, clip(rho) A) of one token; for A < 0, at least dual * A."""
    if advantage == 0.0:
        return 0.0
    ratio = safe_exp(logp - old)
    clipped = min(max(ratio, 1.0 - low), 1.0 + high)
    value = min(ratio * advantage, clipped * advantage)
    if dual is not None and advantage < 0.0:
        value = max(value, dual * advantage)
    return value


def surrogate_weight(
    logp: float, old: float, advantage: float, low: float, high: float, dual: float | None = None
) -> float:
    """Return d value / d logp of one token: rho A inside the trust region, 0 if clipped."""
    ratio = safe_exp(logp - old)
    if advantage > 0.0:
        clipped = ratio > 1.0 + high
    elif advantage < 0.0:
        clipped = ratio < 1.0 - low or (dual is not None and ratio > dual)
    else:
        clipped = True
    return 0.0 if clipped else ratio * advantage


def each(
    of_token: Callable[..., float], logps: Matrix, old: Matrix, advantages: Row, *clip: float | None
) -> Matrix:
    """Return a function of every position; `clip` is low, high and, for a dual clip, its constant."""
    return [
        [of_token(p, o, a, *clip) for p, o in zip(row, old_row, strict=True)]
        for row, old_row, a in zip(logps, old, advantages, strict=True)
    ]


clipped_surrogate = partial(each, surrogate_value)
surrogate_weights = partial(each, surrogate_weight)


def kl_k3(logps: Matrix, ref: Matrix) -> Matrix:
    """Return e^(r - p) - (r - p) - 1 of every position."""
    return [
        [safe_exp(r - p) - (r - p) - 1.0 for p, r in zip(row, ref_row, strict=True)]
        for row, ref_row in zip(logps, ref, strict=True)
    ]


def candidates(logps: Matrix, advantages: Row, mask: Bools, tau_p: float) -> list[tuple[int, int]]:
    """Return the response tokens with A > 0 and probability below tau_p, both strict."""
    return [
        (b, t) for b, t in positions(mask) if advantages[b] > 0.0 and safe_exp(logps[b][t]) < tau_p
    ]


def threshold(
    entropies: Matrix, rare: list[tuple[int, int]], mask: Bools, level: float, scope: str
) -> float:
    """Return a quantile of the entropies of the candidates or of all response tokens.

    It is the linear interpolation between the order statistics around rank q (n - 1).
    """
    pool = {"candidates": rare, "all": positions(mask)}[scope]
    ordered = sorted(entropies[b][t] for b, t in pool)
    rank = level * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def silence(
    logps: Matrix, entropies: Matrix, advantages: Row, mask: Bools, tau_p: float = 0.002,
    quantile: float = 0.75, scope: str = "candidates", highest: bool = False,
) -> Bools:  # fmt: skip
    """Return the tokens kept by STAPO: candidates of entropy strictly below the threshold are silenced.

    With `highest`, those of entropy strictly above the (1 - q) quantile.
    """
    rare = candidates(logps, advantages, mask, tau_p)
    if not rare:
        return mask
    border = threshold(entropies, rare, mask, 1.0 - quantile if highest else quantile, scope)
    found = [(entropies[b][t], (b, t)) for b, t in rare]
    return without(mask, {at for h, at in found if (h > border if highest else h < border)})


def silence_candidates(
    logps: Matrix, entropies: Matrix, advantages: Row, mask: Bools, tau_p: float = 0.002
) -> Bools:
    """Return the tokens kept when every candidate is silenced: JustRL-FullMask."""
    return without(mask, set(candidates(logps, advantages, mask, tau_p)))


def keep_high_entropy(
    logps: Matrix, entropies: Matrix, advantages: Row, mask: Bools, fraction: float = 0.2
) -> Bools:
    """Return the ceil(fraction n) tokens of highest entropy; in a tie, rows take turns."""
    tokens = positions(mask)
    num_kept = math.ceil(fraction * len(tokens))

    def turn(at: tuple[int, int]) -> int:
        row, column = at
        same = [c for r, c in tokens if r == row and entropies[r][c] == entropies[row][column]]
        return same.index(column)

    ordered = sorted(tokens, key=lambda at: (-entropies[at[0]][at[1]], turn(at), at))
    return without(mask, set(ordered[num_kept:]))


def towards_entropy(
    logps: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: str = "candidates",
    target_entropy: float = 0.12,
    entropy_width: float = 0.05,
    negative_tau_p: float | None = 0.01,
) -> Bools:
    """Silence S2T's share of tokens above a mean entropy and, unless None, of the mirror's below it."""
    mean = round(token_mean(entropies, mask) * 1024) / 1024
    share = min(abs(mean - target_entropy) / entropy_width, quantile)
    if mean > target_entropy:
        return silence(logps, entropies, advantages, mask, tau_p, share, scope)
    if mean == target_entropy or negative_tau_p is None:
        return mask
    mirrored = [-a for a in advantages]
    return silence(logps, entropies, mirrored, mask, negative_tau_p, share, scope)


SELECTIONS: dict[str, Callable[..., Bools]] = {
    "keep_all": lambda logps, entropies, advantages, mask: mask,
    "silence_spurious": silence,
    "silence_high_entropy": partial(silence, highest=True),
    "silence_candidates": silence_candidates,
    "keep_high_entropy": keep_high_entropy,
    "silence_above_entropy": partial(towards_entropy, negative_tau_p=None),
    "silence_towards_entropy": towards_entropy,
}
"""Those of `stapo.core.objective.SELECTIONS` that draw none at random."""


def token_mean(values: Matrix, keep: Bools) -> float:
    """Return the mean over the kept tokens of the whole mini-batch, 0 without any."""
    kept = positions(keep)
    return math.fsum(values[b][t] for b, t in kept) / len(kept) if kept else 0.0


def group_token_mean(values: Matrix, keep: Bools, group_size: int) -> float:
    """Return the mean of the groups' token means; groups without a token do not count.

    With a group of all responses it is their token mean, with groups of one the mean of responses' means.
    """
    starts = range(0, len(keep), group_size)
    parts = [(values[i : i + group_size], keep[i : i + group_size]) for i in starts]
    means = [token_mean(*part) for part in parts if positions(part[1])]
    return math.fsum(means) / len(means) if means else 0.0


def mean_weights(keep: Bools, group_size: int) -> Matrix:
    """Return d group_token_mean / d value of every position."""
    starts = range(0, len(keep), group_size)
    counts = [len(positions(keep[i : i + group_size])) for i in starts]
    shares = [1.0 / (len([c for c in counts if c]) * count) if count else 0.0 for count in counts]
    return [[shares[b // group_size] * true for true in row] for b, row in enumerate(keep)]


def loss_and_gradient(
    logps: Matrix, old: Matrix, advantages: Row, keep: Bools, clip: tuple[float | None, ...],
    group_size: int, ref: Matrix | None = None, beta: float = 0.0,
) -> tuple[float, Matrix]:  # fmt: skip
    """Return minus the objective of some tokens, and its derivative by every log-probability.

    The mean is that of `group_token_mean`; `ref` and `beta` belong to GRPO's KL term.
    """
    loss = -group_token_mean(clipped_surrogate(logps, old, advantages, *clip), keep, group_size)
    slopes = surrogate_weights(logps, old, advantages, *clip)
    shares = mean_weights(keep, group_size)
    if ref is not None:
        loss += beta * group_token_mean(kl_k3(logps, ref), keep, group_size)
    gradient = [[0.0] * len(row) for row in keep]
    for b, t in positions(keep):
        kl_slope = 1.0 - safe_exp(ref[b][t] - logps[b][t]) if ref is not None else 0.0
        gradient[b][t] = shares[b][t] * (beta * kl_slope - slopes[b][t])
    return loss, gradient
