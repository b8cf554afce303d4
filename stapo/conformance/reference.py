"""The update as plain double-precision loops over the formulas, without torch and `stapo.objective`.

B sequences, T response positions; a (B, T) quantity is a list of B lists. It is used to compute the fixtures,
and the selections of other conventions.
"""

from collections.abc import Mapping, Sequence
from math import ceil, exp

Table = list[list[float]]
Mask = list[list[bool]]


def quantile(values: Sequence[float], q: float) -> float:
    """Return the quantile by linear interpolation."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def silenced_by_s2t(
    logps: Table,
    entropies: Table,
    advantages: list[float],
    mask: Mask,
    args: Mapping[str, float | str],
    *,
    tau_inclusive: bool = False,
    threshold_inclusive: bool = False,
) -> tuple[Mask, float | None]:
    """Return the tokens kept by S2T and its threshold, None without candidates.

    Args:
        logps: (B, T) log-probs for the selection.
        entropies: (B, T) entropies for the selection.
        advantages: (B,) advantages.
        mask: (B, T) response tokens.
        args: `tau_p`, `quantile`, `scope`.
        tau_inclusive: whether a probability equal to tau_p is rare; the paper: no.
        threshold_inclusive: whether an entropy equal to the threshold is low; the paper: no.
    """
    tau_p = float(args["tau_p"])
    inside = [(b, t) for b, row in enumerate(mask) for t, true in enumerate(row) if true]
    candidates = [
        (b, t)
        for b, t in inside
        if advantages[b] > 0
        and (exp(logps[b][t]) < tau_p or (tau_inclusive and exp(logps[b][t]) == tau_p))
    ]
    keep = [list(row) for row in mask]
    if not candidates:
        return keep, None
    pool = candidates if args["scope"] == "candidates" else inside
    threshold = quantile([entropies[b][t] for b, t in pool], float(args["quantile"]))
    for b, t in candidates:
        if entropies[b][t] < threshold or (threshold_inclusive and entropies[b][t] == threshold):
            keep[b][t] = False
    return keep, threshold


def kept_by_entropy(entropies: Table, mask: Mask, fraction: float) -> Mask:
    """Return the ceil(fraction n) of the n response tokens with the highest entropy.

    At a fraction of 0.2 without ties these are the tokens not below the 0.8 quantile.
    """
    inside = [(b, t) for b, row in enumerate(mask) for t, true in enumerate(row) if true]
    count = min(len(inside), ceil(round(fraction * len(inside), 9)))
    keep = [[False] * len(row) for row in mask]
    # sorted() is stable, so ties are kept in row-major order.
    for b, t in sorted(inside, key=lambda place: -entropies[place[0]][place[1]])[:count]:
        keep[b][t] = True
    return keep


def token_weight(
    logp: float, old: float, ref: float, advantage: float, clip: tuple[float, float], kl: float
) -> tuple[float, float]:
    """Return the objective of one token, to be maximised, and its derivative with respect to the log-prob."""
    ratio = exp(logp - old)
    clipped = min(max(ratio, 1 - clip[0]), 1 + clip[1])
    value, slope = ratio * advantage, ratio * advantage
    if clipped * advantage < value:
        value, slope = clipped * advantage, 0.0
    log_ratio = ref - logp
    value -= kl * (exp(log_ratio) - log_ratio - 1)
    slope -= kl * (1 - exp(log_ratio))
    return value, slope


def divisors(keep: Mask, aggregation: str) -> Table:
    """Return the divisor of each kept token's loss."""
    counts = [sum(row) for row in keep]
    if aggregation == "token_mean":
        return [[float(sum(counts))] * len(row) for row in keep]
    if aggregation != "sequence_mean":
        raise ValueError(f"aggregation: the kit has no batches for {aggregation}")
    responses = sum(count > 0 for count in counts)
    return [[float(count * responses)] * len(row) for row, count in zip(keep, counts, strict=True)]
