"""Statistics of scores: means, intervals, paired differences. The unit is the problem.

A cell is an array (S, P, N): whether sample n of problem p was correct under training seed s. The N
responses to a problem are no independent observations, so problems are resampled, and with several
seeds the seeds too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

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
    wrong: list[int] = np.bincount(
        (n - correct.sum(axis=2)).astype(int).ravel(), minlength=n + 1
    ).tolist()
    # Whole numbers until the division: with fewer than k wrong samples comb(w, k) is 0.
    missed: int = sum(count * comb(w, k) for w, count in enumerate(wrong))
    return 1 - missed / (sum(wrong) * comb(n, k))


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


def problem_counts(problems: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Array:
    """Return (resamples, problems) how often each resample draws each problem; rows sum to `problems`.

    One draw serves every checkpoint that answered these problems: that makes differences paired.
    """
    counts = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples)
    return counts.astype(float)


def seed_choices(
    seeds: int, rng: np.random.Generator, resamples: int = RESAMPLES
) -> NDArray[np.int64]:
    """Return (resamples, seeds) drawn training seeds of one method.

    A seed is a trained model: one draw serves all benchmarks that it answered.
    """
    return rng.integers(seeds, size=(resamples, seeds))


def bootstrap_means(correct: Array, counts: Array, seeds: NDArray[np.int64]) -> Array:
    """Return (resamples,) means of one cell, over drawn problems and drawn seeds.

    With one seed only the problems vary: an interval then says nothing about the method. Drawing S seeds
    of S gives a spread that is too small by (S - 1) / S, which is made good; with two or three seeds
    the interval is still too short, since it does not know how uncertain that spread is.

    Args:
        correct: (S, P, N).
        counts: (resamples, P), as of `problem_counts`.
        seeds: (resamples, S), as of `seed_choices`.
    """
    # Sums of whole numbers are exact in any order: BLAS adds in another one on another CPU, and a table
    # that differs in its last digit would not verify there.
    means: Array = counts @ correct.sum(axis=2).T / (correct.shape[1] * correct.shape[2])
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
        ours, theirs = (x.shape[0] * x.shape[2] for x in (a, b))
        # Whole numbers, as in `bootstrap_means`: gaps in units of 1 / (ours * theirs).
        gaps = a.sum(axis=(0, 2)) * theirs - b.sum(axis=(0, 2)) * ours
        unit = ours * theirs
        value += gaps.sum() / unit / len(gaps) / len(first)
        questions += gaps.sum() / unit
        signs = rng.choice([-1.0, 1.0], size=(RESAMPLES, len(gaps)))
        flips += signs @ gaps / unit / len(gaps) / len(first)
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
