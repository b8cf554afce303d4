"""The objective as plain loops in double precision, written directly from the formulas.

A second, independent implementation for comparison with `stapo.objective`: only lists and `math`, no
tensors, and no imports from `stapo`. B sequences, T response positions; entropies and log-probabilities
in nats. A (B, T) quantity is a list of B rows of T numbers; `mask` and `keep` are lists of rows of bools.
"The mini-batch" is everything that is passed in one call.
"""

import math

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


def like(matrix: list[list], value: object) -> list[list]:
    """Return rows of the same lengths, filled with one value."""
    return [[value] * len(row) for row in matrix]


def without(mask: Bools, silenced: set[tuple[int, int]]) -> Bools:
    """Return `mask` with the silenced positions set to false."""
    return [
        [true and (b, t) not in silenced for t, true in enumerate(row)]
        for b, row in enumerate(mask)
    ]


# Advantages -------------------------------------------------------------------------------------


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


# Surrogate --------------------------------------------------------------------------------------


def surrogate_value(
    logp: float, old: float, advantage: float, low: float, high: float, dual: float | None
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
    logp: float, old: float, advantage: float, low: float, high: float, dual: float | None
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


def clipped_surrogate(
    logps: Matrix, old: Matrix, advantages: Row, low: float, high: float, dual: float | None = None
) -> Matrix:
    """Return the surrogate of every position."""
    return [
        [surrogate_value(p, o, a, low, high, dual) for p, o in zip(row, old_row, strict=True)]
        for row, old_row, a in zip(logps, old, advantages, strict=True)
    ]


def surrogate_weights(
    logps: Matrix, old: Matrix, advantages: Row, low: float, high: float, dual: float | None = None
) -> Matrix:
    """Return the derivative of the surrogate of every position by its log-probability."""
    return [
        [surrogate_weight(p, o, a, low, high, dual) for p, o in zip(row, old_row, strict=True)]
        for row, old_row, a in zip(logps, old, advantages, strict=True)
    ]


def kl_k3(logps: Matrix, ref: Matrix) -> Matrix:
    """Return e^(r - p) - (r - p) - 1 of every position."""
    return [
        [safe_exp(r - p) - (r - p) - 1.0 for p, r in zip(row, ref_row, strict=True)]
        for row, ref_row in zip(logps, ref, strict=True)
    ]


# Token selection --------------------------------------------------------------------------------


def quantile(values: Row, q: float) -> float:
    """Return the quantile by linear interpolation between the order statistics around rank q (n - 1)."""
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def candidates(logps: Matrix, advantages: Row, mask: Bools, tau_p: float) -> list[tuple[int, int]]:
    """Return the response tokens with A > 0 and probability below tau_p, both strict."""
    return [
        (b, t) for b, t in positions(mask) if advantages[b] > 0.0 and safe_exp(logps[b][t]) < tau_p
    ]


def keep_all(mask: Bools) -> Bools:
    """Return the response tokens themselves: JustRL and GRPO."""
    return without(mask, set())


def silence_spurious(
    logps: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    tau_p: float = 0.002,
    q: float = 0.75,
    scope: str = "candidates",
) -> Bools:
    """Return the tokens kept by STAPO: candidates of entropy strictly below the threshold are silenced."""
    rare = candidates(logps, advantages, mask, tau_p)
    if not rare:
        return keep_all(mask)
    pool = {"candidates": rare, "all": positions(mask)}[scope]
    threshold = quantile([entropies[b][t] for b, t in pool], q)
    return without(mask, {(b, t) for b, t in rare if entropies[b][t] < threshold})


def silence_high_entropy(
    logps: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    tau_p: float = 0.002,
    q: float = 0.75,
    scope: str = "candidates",
) -> Bools:
    """Return the tokens kept when candidates of entropy strictly above the (1 - q) quantile are silenced."""
    rare = candidates(logps, advantages, mask, tau_p)
    if not rare:
        return keep_all(mask)
    pool = {"candidates": rare, "all": positions(mask)}[scope]
    threshold = quantile([entropies[b][t] for b, t in pool], 1.0 - q)
    return without(mask, {(b, t) for b, t in rare if entropies[b][t] > threshold})


def silence_candidates(logps: Matrix, advantages: Row, mask: Bools, tau_p: float = 0.002) -> Bools:
    """Return the tokens kept when every candidate is silenced: JustRL-FullMask."""
    return without(mask, set(candidates(logps, advantages, mask, tau_p)))


def num_silenced_at_random(
    logps: Matrix, advantages: Row, mask: Bools, tau_p: float = 0.002, q: float = 0.75
) -> int:
    """Return how many candidates the random ablation silences; its random generator chooses which."""
    return round(q * len(candidates(logps, advantages, mask, tau_p)))


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


def token_quadrants(
    logps: Matrix, entropies: Matrix, mask: Bools, tau_p: float, tau_h: float
) -> list[list[int]]:
    """Return 2 * [p not below tau_p] + [H not below tau_h] at response tokens, -1 elsewhere."""
    quadrants = like(mask, -1)
    for b, t in positions(mask):
        high_p = not safe_exp(logps[b][t]) < tau_p
        high_h = not entropies[b][t] < tau_h
        quadrants[b][t] = 2 * high_p + high_h
    return quadrants


# Aggregation ------------------------------------------------------------------------------------


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


# Diagnostics ------------------------------------------------------------------------------------


def logit_gradient_norm_sq(weight: float, logp: float, collision: float) -> float:
    """Return w^2 (1 - 2 p + sum_v p_v^2)."""
    return weight**2 * (1.0 - 2.0 * math.exp(logp) + collision)


def gradient_norm_bounds(
    weight: float, logp: float, entropy: float, vocab_size: int
) -> tuple[float, float]:
    """Return w^2 (1 - 2 p + e^-H) and w^2 (2 - 2 p - C_V H^2)."""
    c_v = (vocab_size - 1) / (vocab_size * math.log(vocab_size) ** 2)
    p = math.exp(logp)
    lower = weight**2 * (1.0 - 2.0 * p + math.exp(-entropy))
    upper = weight**2 * (2.0 - 2.0 * p - c_v * entropy**2)
    return lower, upper


# Whole methods ----------------------------------------------------------------------------------


def method_keep(
    method: str, logps: Matrix, entropies: Matrix, advantages: Row, mask: Bools
) -> Bools:
    """Return the tokens that a method of the paper keeps, with the paper's thresholds."""
    if method in ("grpo", "justrl"):
        return keep_all(mask)
    if method == "20-entropy":
        return keep_high_entropy(entropies, mask)
    if method == "stapo":
        return silence_spurious(logps, entropies, advantages, mask)
    if method == "stapo-v2":
        return silence_spurious(logps, entropies, advantages, mask, q=0.8, scope="all")
    raise ValueError(method)


def method_loss(
    method: str,
    logps: Matrix,
    old: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    ref: Matrix | None = None,
    beta: float = 0.0,
) -> float:
    """Return the loss of a method on a mini-batch, minus its objective.

    `ref` and `beta` belong to GRPO's KL term.
    """
    keep = method_keep(method, logps, entropies, advantages, mask)
    if method == "grpo":
        loss = -sequence_mean(clipped_surrogate(logps, old, advantages, 0.2, 0.2), mask)
        return loss + beta * sequence_mean(kl_k3(logps, ref), mask) if ref is not None else loss
    return -token_mean(clipped_surrogate(logps, old, advantages, 0.2, 0.28), keep)


def method_gradient(
    method: str,
    logps: Matrix,
    old: Matrix,
    entropies: Matrix,
    advantages: Row,
    mask: Bools,
    ref: Matrix | None = None,
    beta: float = 0.0,
) -> Matrix:
    """Return the derivative of `method_loss` by every log-probability, in closed form."""
    if method == "grpo":
        slopes = surrogate_weights(logps, old, advantages, 0.2, 0.2)
        shares = sequence_mean_weights(mask)
    else:
        slopes = surrogate_weights(logps, old, advantages, 0.2, 0.28)
        keep = method_keep(method, logps, entropies, advantages, mask)
        shares = token_mean_weights(keep)
    gradient = like(logps, 0.0)
    for b, t in positions(mask):
        kl_slope = 1.0 - safe_exp(ref[b][t] - logps[b][t]) if ref is not None else 0.0
        gradient[b][t] = shares[b][t] * (beta * kl_slope - slopes[b][t])
    return gradient
