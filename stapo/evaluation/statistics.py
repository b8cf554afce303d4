"""Statistics of scores: means, intervals, paired differences. The unit is the problem.

A cell is an array (S, P, N): whether sample n of problem p was correct under training seed s. The N
responses to a problem are no independent observations, so problems are resampled, and with several
seeds the seeds too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

RESAMPLES = 10_000
LEVEL = 0.95
DETECTABLE_ERRORS = 2.80
"""Standard errors: 1.96 for the level of 5 %, 0.84 for a power of 80 %."""


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
    questions: float
    """The same in problems answered more, summed over the benchmarks."""
    detectable: float
    """The smallest difference that would have been found with a chance of 80 %, at 5 %, two-sided."""


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


def majority_at_n(
    answers: Sequence[Sequence[str | None]], correct: Sequence[Sequence[bool]]
) -> float:
    """Return the share of problems whose most frequent answer is correct; of equal ones the first counts.

    Args:
        answers: per problem, the N extracted answers; None where there is none, which never wins.
        correct: per problem, the N verdicts.
    """
    won = 0
    for given, verdicts in zip(answers, correct, strict=True):
        votes = Counter(answer for answer in given if answer is not None)
        if votes:
            (winner, _), *_ = votes.most_common(1)
            won += verdicts[list(given).index(winner)]
    return won / len(answers)


def problem_weights(problems: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Array:
    """Return (resamples, problems) weights of bootstrap means over problems, each row summing to 1.

    One draw serves every checkpoint that answered these problems: that makes differences paired.
    """
    counts = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples)
    weights: Array = counts / problems
    return weights


def seed_choices(
    seeds: int, rng: np.random.Generator, resamples: int = RESAMPLES
) -> NDArray[np.int64]:
    """Return (resamples, seeds) drawn training seeds of one method.

    A seed is a trained model: one draw serves all benchmarks that it answered.
    """
    return rng.integers(seeds, size=(resamples, seeds))


def bootstrap_means(correct: Array, weights: Array, seeds: NDArray[np.int64]) -> Array:
    """Return (resamples,) means of one cell, over drawn problems and drawn seeds.

    With one seed only the problems vary: an interval then says nothing about the method. Drawing S seeds
    of S gives a spread that is too small by (S - 1) / S, which is made good; with two or three seeds
    the interval is still too short, since it does not know how uncertain that spread is.

    Args:
        correct: (S, P, N).
        weights: (resamples, P), as of `problem_weights`.
        seeds: (resamples, S), as of `seed_choices`.
    """
    means: Array = weights @ correct.mean(axis=2).T
    centre = means.mean(axis=1)
    drawn = np.take_along_axis(means, seeds, axis=1).mean(axis=1)
    count = means.shape[1]
    inflation = np.sqrt(count / (count - 1)) if count > 1 else 1.0
    averages: Array = centre + inflation * (drawn - centre)
    return averages


def interval(value: float, draws: Array) -> Interval:
    """Return the percentile interval of bootstrap draws around a value."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(value, float(low), float(high))


def paired_difference(
    first: Sequence[Array], second: Sequence[Array], draws: Array, rng: np.random.Generator
) -> Difference:
    """Return the difference of two averages over the same benchmarks, paired by problem.

    The average is the plain mean over benchmarks; signs are flipped by problem within each benchmark.
    Seeds are averaged first: the p-value is about these checkpoints, the interval also about seeds.

    Args:
        first: (S, P, N) of each benchmark.
        second: the same problems under another method.
        draws: (resamples,) differences of the two averages in the same resamples.
        rng: source of the flips.
    """
    value, questions, flips = 0.0, 0.0, np.zeros(RESAMPLES)
    for a, b in zip(first, second, strict=True):
        gaps = a.mean(axis=(0, 2)) - b.mean(axis=(0, 2))
        value += gaps.mean() / len(first)
        questions += gaps.sum()
        signs = rng.choice([-1.0, 1.0], size=(RESAMPLES, len(gaps)))
        flips += signs @ gaps / len(gaps) / len(first)
    # The observed value is one of the permutations: a p-value is never 0. Rounding must not split ties.
    extreme = int((np.abs(flips) >= abs(value) - 1e-12).sum())
    bounds = interval(value, draws)
    return Difference(
        value=value,
        low=bounds.low,
        high=bounds.high,
        p_value=(extreme + 1) / (RESAMPLES + 1),
        questions=questions,
        detectable=DETECTABLE_ERRORS * float(draws.std()),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for the size of their family by Holm's method."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted
