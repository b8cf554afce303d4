"""The objective as plain loops in double precision, written directly from the formulas.

A second, independent implementation for comparison with `stapo.objective`: only lists and `math`, no
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


def group_advantages(rewards: Row, group_size: int, eps: float = 1e-6) -> Row:
    """Return (R - mean) / (std + eps) per group, std with n - 1; 0 where all rewards of a group are equal."""
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        if min(group) == max(group):
            advantages += [0.0] * group_size
            continue
        mean = math.fsum(group) / group_size
        variance = math.fsum((reward - mean) ** 2 for reward in group) / (group_size - 1)
        advantages += [(reward - mean) / (math.sqrt(variance) + eps) for reward in group]
    return advantages


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


def clipped_surrogate(logps: Matrix, old: Matrix, advantages: Row, *clip: float | None) -> Matrix:
    """Return the surrogate of every position; `clip` is low, high and, for a dual clip, its constant."""
    return each(surrogate_value, logps, old, advantages, clip)


def surrogate_weights(logps: Matrix, old: Matrix, advantages: Row, *clip: float | None) -> Matrix:
    """Return the derivative of the surrogate of every position by its log-probability."""
    return each(surrogate_weight, logps, old, advantages, clip)


def each(
    of_token: Callable[..., float], logps: Matrix, old: Matrix, advantages: Row, clip: tuple
) -> Matrix:
    """Return a function of every position."""
    return [
        [of_token(p, o, a, *clip) for p, o in zip(row, old_row, strict=True)]
        for row, old_row, a in zip(logps, old, advantages, strict=True)
    ]


def kl_k3(logps: Matrix, ref: Matrix) -> Matrix:
    """Return e^(r - p) - (r - p) - 1 of every position."""
    return [
        [safe_exp(r - p) - (r - p) - 1.0 for p, r in zip(row, ref_row, strict=True)]
        for row, ref_row in zip(logps, ref, strict=True)
    ]


def at_quantile(values: Row, level: float) -> float:
    """Return the quantile by linear interpolation between the order statistics around rank q (n - 1)."""
    ordered = sorted(values)
    rank = level * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def candidates(logps: Matrix, advantages: Row, mask: Bools, tau_p: float) -> list[tuple[int, int]]:
    """Return the response tokens with A > 0 and probability below tau_p, both strict."""
    return [
        (b, t) for b, t in positions(mask) if advantages[b] > 0.0 and safe_exp(logps[b][t]) < tau_p
    ]


def threshold(
    entropies: Matrix, rare: list[tuple[int, int]], mask: Bools, level: float, scope: str
) -> float:
    """Return the quantile of the entropies of the candidates or of all response tokens."""
    pool = {"candidates": rare, "all": positions(mask)}[scope]
    return at_quantile([entropies[b][t] for b, t in pool], level)


def keep_all(mask: Bools) -> Bools:
    """Return the response tokens themselves: JustRL and GRPO."""
    return without(mask, set())


def silence_spurious(
    logps: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: str = "candidates",
) -> Bools:
    """Return the tokens kept by STAPO: candidates of entropy strictly below the threshold are silenced."""
    rare = candidates(logps, advantages, mask, tau_p)
    highest = threshold(entropies, rare, mask, quantile, scope) if rare else 0.0
    return without(mask, {(b, t) for b, t in rare if entropies[b][t] < highest})


def silence_high_entropy(
    logps: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    tau_p: float = 0.002,
    quantile: float = 0.75,
    scope: str = "candidates",
) -> Bools:
    """Return the tokens kept when candidates of entropy strictly above the (1 - q) quantile are silenced."""
    rare = candidates(logps, advantages, mask, tau_p)
    lowest = threshold(entropies, rare, mask, 1.0 - quantile, scope) if rare else 0.0
    return without(mask, {(b, t) for b, t in rare if entropies[b][t] > lowest})


def silence_candidates(logps: Matrix, advantages: Row, mask: Bools, tau_p: float = 0.002) -> Bools:
    """Return the tokens kept when every candidate is silenced: JustRL-FullMask."""
    return without(mask, set(candidates(logps, advantages, mask, tau_p)))


def keep_high_entropy(entropies: Matrix, mask: Bools, fraction: float = 0.2) -> Bools:
    """Return the ceil(fraction n) tokens of highest entropy; in a tie, rows take turns."""
    tokens = positions(mask)
    num_kept = math.ceil(fraction * len(tokens))

    def turn(at: tuple[int, int]) -> int:
        row, column = at
        same = [c for r, c in tokens if r == row and entropies[r][c] == entropies[row][column]]
        return same.index(column)

    ordered = sorted(tokens, key=lambda at: (-entropies[at[0]][at[1]], turn(at), at))
    return without(mask, set(ordered[num_kept:]))


SELECTIONS = (
    "keep_all", "silence_spurious", "silence_high_entropy", "silence_candidates", "keep_high_entropy",
)  # fmt: skip
"""Those of `select`."""


def select(
    name: str, logps: Matrix, entropies: Matrix, advantages: Row, mask: Bools, **args: float | str
) -> Bools:
    """Return the tokens kept by a selection of `stapo.objective.SELECTIONS` that draws none at random."""
    return {
        "keep_all": partial(keep_all, mask),
        "silence_spurious": partial(silence_spurious, logps, entropies, advantages, mask),
        "silence_high_entropy": partial(silence_high_entropy, logps, entropies, advantages, mask),
        "silence_candidates": partial(silence_candidates, logps, advantages, mask),
        "keep_high_entropy": partial(keep_high_entropy, entropies, mask),
    }[name](**args)


def token_mean(values: Matrix, keep: Bools) -> float:
    """Return the mean over the kept tokens of the whole mini-batch, 0 without any."""
    kept = positions(keep)
    return math.fsum(values[b][t] for b, t in kept) / len(kept) if kept else 0.0


def group_token_mean(values: Matrix, keep: Bools, group_size: int) -> float:
    """Return the mean of the groups' token means; groups without a token do not count."""
    starts = range(0, len(keep), group_size)
    parts = [(values[i : i + group_size], keep[i : i + group_size]) for i in starts]
    means = [token_mean(*part) for part in parts if positions(part[1])]
    return math.fsum(means) / len(means) if means else 0.0


def sequence_mean(values: Matrix, mask: Bools) -> float:
    """Return the mean of the responses' means; responses without a token do not count."""
    means = []
    for row, row_mask in zip(values, mask, strict=True):
        kept = [value for value, true in zip(row, row_mask, strict=True) if true]
        if kept:
            means.append(math.fsum(kept) / len(kept))
    return math.fsum(means) / len(means) if means else 0.0


def token_mean_weights(keep: Bools) -> Matrix:
    """Return d token_mean / d value of every position."""
    num_kept = len(positions(keep))
    return [[1.0 / num_kept if true else 0.0 for true in row] for row in keep]


def sequence_mean_weights(mask: Bools) -> Matrix:
    """Return d sequence_mean / d value of every position."""
    num_responses = sum(any(row) for row in mask)
    return [[1.0 / (num_responses * sum(row)) if true else 0.0 for true in row] for row in mask]


def loss_and_gradient(
    logps: Matrix,
    old: Matrix,
    advantages: Row,
    keep: Bools,
    high: float,
    aggregation: str,
    ref: Matrix | None = None,
    beta: float = 0.0,
) -> tuple[float, Matrix]:
    """Return minus the objective of some tokens, and its derivative by every log-probability.

    `ref` and `beta` belong to GRPO's KL term.
    """
    mean, weights = {
        "token_mean": (token_mean, token_mean_weights),
        "sequence_mean": (sequence_mean, sequence_mean_weights),
    }[aggregation]
    loss = -mean(clipped_surrogate(logps, old, advantages, 0.2, high), keep)
    slopes, shares = surrogate_weights(logps, old, advantages, 0.2, high), weights(keep)
    if ref is not None:
        loss += beta * mean(kl_k3(logps, ref), keep)
    gradient = [[0.0] * len(row) for row in keep]
    for b, t in positions(keep):
        kl_slope = 1.0 - safe_exp(ref[b][t] - logps[b][t]) if ref is not None else 0.0
        gradient[b][t] = shares[b][t] * (beta * kl_slope - slopes[b][t])
    return loss, gradient
