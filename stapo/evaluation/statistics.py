"""Statistics of scores: means, intervals, paired differences. The unit is the problem.

A cell is an array (S, P, N): whether sample n of problem p was correct under training seed s. The N
responses to a problem are no independent observations, so problems are resampled, and with several
seeds the seeds too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """A paired difference of averages with its interval and two-sided p-value."""

    value: float
    low: float
    high: float
    p_value: float


def average_at_n(correct: Array) -> float:
    """Return the mean over samples, then problems, then seeds, of an (S, P, N) array."""
    return float(correct.mean(axis=2).mean(axis=1).mean())


def pass_at_k(correct: Array, k: int) -> float:
    """Return the unbiased estimate of the chance that one of k samples is correct.

    Args:
        correct: (S, P, N).
        k: at most N.

    Raises:
        ValueError: k outside 1 to N.

    Source: arXiv 2107.03374, eq. 1.
    """
    n = correct.shape[2]
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1 to {n}, found {k}")
    wrong = n - correct.sum(axis=2)
    # C(wrong, k) / C(n, k), in logarithms; with fewer than k wrong samples one is right for sure.
    enough = wrong >= k
    safe = np.where(enough, wrong, k)
    log_miss = gammaln(safe + 1) - gammaln(safe - k + 1) - gammaln(n + 1) + gammaln(n - k + 1)
    return float(1 - np.where(enough, np.exp(log_miss), 0.0).mean())


def resample(correct: Array, rng: np.random.Generator, resamples: int = RESAMPLES) -> Array:
    """Return (resamples,) bootstrap means of one cell: seeds drawn first, then problems.

    One draw of problems serves all seeds of a resample, since every seed answers the same problems.
    With one seed only the problems vary: the interval then says nothing about the method.
    """
    by_problem = correct.mean(axis=2)
    seeds, problems = by_problem.shape
    weights = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples) / problems
    means: Array = weights @ by_problem.T
    drawn = rng.integers(seeds, size=(resamples, seeds))
    chosen: Array = np.take_along_axis(means, drawn, axis=1)
    averages: Array = chosen.mean(axis=1)
    return averages


def interval(value: float, draws: Array) -> Interval:
    """Return the percentile interval of bootstrap draws around a value."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def paired_difference(
    first: Sequence[Array], second: Sequence[Array], rng: np.random.Generator
) -> Difference:
    """Return the difference of two averages over the same benchmarks, paired by problem.

    The average is the plain mean over benchmarks; problems are resampled and signs flipped within
    each benchmark. Seeds are averaged first: the p-value is about these checkpoints.

    Args:
        first: (S, P, N) of each benchmark.
        second: the same problems under another method.
        rng: source of the resamples.
    """
    value, draws, flips = 0.0, np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for a, b in zip(first, second, strict=True):
        gaps = a.mean(axis=(0, 2)) - b.mean(axis=(0, 2))
        n = len(gaps)
        value += gaps.mean() / len(first)
        draws += rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) @ gaps / n / len(first)
        flips += rng.choice([-1.0, 1.0], size=(RESAMPLES, n)) @ gaps / n / len(first)
    # The observed value is one of the permutations: a p-value is never 0. Rounding must not split ties.
    extreme = int((np.abs(flips) >= abs(value) - 1e-12).sum())
    bounds = interval(value, draws)
    return Difference(value, bounds.low, bounds.high, (extreme + 1) / (RESAMPLES + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for the size of their family by Holm's method."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted
