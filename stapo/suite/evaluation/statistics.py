"""Statistics of scores: means, intervals, paired differences.

A cell is an array (S, P, N): whether sample n of problem p was correct under training seed s. The N
responses to a problem are not independent, so whole problems are resampled and, if there are several
seeds, seeds too.

Near 0 and 1 a bootstrap is too narrow: resamples of 30 wrong answers are all wrong. There, an interval also
contains that of Clopper and Pearson, for as many independent problems as would have the same variance (Korn
and Graubard, Survey Methodology 24, 1998).

The highest of several noisy averages is too high on average. A gain over it is too low, and choosing anew in
each bootstrap resample makes it lower again. Cross-fitting chooses the strongest baseline on one half of the
problems and of the training seeds, and measures it on the other half.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, exp, fsum, inf, isfinite, log, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

Array = NDArray[np.float64]

RESAMPLES = 10_000
AVERAGE = "Avg"
TIE = 1e-12
"""Differences that are closer are equal: they were rounded differently."""
LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
DETECTABLE = 2.80
"""Standard errors of the smallest detectable difference: 1.96 for a level of 5 % and 0.84 for 80 % power."""
NORMAL = 1.959964
"""97.5 % quantile of the standard normal distribution."""
FEW = 10
"""Effective number of right or of wrong answers below which a bootstrap is not trusted alone."""
FLIPS = 6
"""Problems whose differences must all have the same sign for a p-value below 5 %: 2 / 2^6."""
SPLITS = 400
"""Random halves in which the strongest baseline is chosen, each used both ways."""
SEED = 0


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; low and high are nan if there is none."""

    value: float
    low: float
    high: float

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Return an increasing function of the value and of its ends."""
        return Interval(*map(function, (self.value, self.low, self.high)))

    def times(self, unit: float) -> "Interval":
        """Return the same in another unit, such as 100 for percent."""
        return self.map(lambda number: unit * number)


UNKNOWN = Interval(nan, nan, nan)


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference of averages with its interval and two-sided p-value."""

    p_value: float
    questions: float
    """The same difference as a number of problems, summed over the benchmarks."""
    detectable: float
    """Smallest difference that is detected with a power of 80 %, at 5 %, two-sided."""


def average_at_n(correct: Array) -> float:
    """Return the mean of an (S, P, N) array over samples, then problems, then seeds."""
    return float(correct.mean(axis=2).mean(axis=1).mean())


def pass_at_k(correct: Array, k: int) -> float:
    """Return the unbiased estimate of the probability that one of k <= N samples is correct, of (S, P, N).

    Source: arXiv 2107.03374, eq. 1.
    """
    n = correct.shape[2]
    wrong = [int(count) for count in (n - correct.sum(axis=2)).ravel()]
    # Integers until the division; comb(w, k) is 0 if w < k.
    return 1 - sum(comb(w, k) for w in wrong) / (len(wrong) * comb(n, k))


def problem_counts(problems: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Array:
    """Return (resamples, problems): how often each resample contains each problem; rows sum to `problems`.

    The same draw is used for all checkpoints, which makes differences paired.
    """
    return rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples).astype(float)


def seed_choices(
    seeds: int, rng: np.random.Generator, resamples: int = RESAMPLES
) -> NDArray[np.int64]:
    """Return (resamples, seeds): resampled training seeds of a method, the same for all its benchmarks."""
    return rng.integers(seeds, size=(resamples, seeds))


def bootstrap_means(correct: Array, counts: Array, seeds: NDArray[np.int64]) -> Array:
    """Return (resamples,) means of one cell, over resampled problems and seeds.

    With one seed only the problems vary, so the interval says nothing about the method. Drawing S out of
    S seeds gives a variance that is too small by the factor (S - 1) / S, and is itself uncertain: both are
    corrected, the latter as in Student's interval. With few or similar seeds, intervals are wide. Draws can
    be beyond 0 and 1: limited here, the mean over benchmarks would be biased (see `accuracies_of`).

    Verdicts are (S, P, N), counts (resamples, P) by `problem_counts`, seeds (resamples, S) by `seed_choices`.
    """
    # Sums of integers are exact in any order. BLAS adds in a different order on another CPU, and a table
    # that differs in its last digit would not verify there.
    means: Array = counts @ correct.sum(axis=2).T / (correct.shape[1] * correct.shape[2])
    centre = means.mean(axis=1)
    averages: Array = np.take_along_axis(means, seeds, axis=1).mean(axis=1)
    if (count := means.shape[1]) > 1:
        inflation = sqrt(count / (count - 1)) * _student(count - 1) / NORMAL
        averages = centre + inflation * (averages - centre)
    return averages


def interval(value: float, draws: Array) -> Interval:
    """Return a value with the percentile interval of its bootstrap draws."""
    low, high = np.quantile(draws, [TAIL, 1 - TAIL])
    return Interval(value, float(low), float(high))


class Accuracies(NamedTuple):
    """Accuracies of one method in percent, on benchmarks and averaged over them (`AVERAGE`)."""

    values: dict[str, Interval]
    """Their intervals are over problems and seeds."""
    draws: dict[str, Array]
    """(resamples,) each."""


def accuracies_of(
    cells: Mapping[str, Array],
    counts: Mapping[str, Array],
    averaged: Iterable[str],
    rng: np.random.Generator,
) -> Accuracies:
    """Return the accuracies of a method, from the verdicts (S, P, N) and `problem_counts` of each benchmark.

    With the same counts for all methods, these are paired. The average is over the benchmarks `averaged`.
    """
    seeds = {n: seed_choices(n, rng) for n in dict.fromkeys(map(len, cells.values()))}
    draws = {b: 100 * bootstrap_means(c, counts[b], seeds[len(c)]) for b, c in cells.items()}
    values = {b: 100 * average_at_n(cell) for b, cell in cells.items()}
    draws[AVERAGE] = np.mean([draws[b] for b in averaged], axis=0)
    values[AVERAGE] = float(np.mean([values[b] for b in averaged]))
    exact, near = {}, set()
    for name, cell in cells.items():
        value, number = average_at_n(cell), _effective_problems(cell)
        ends = clopper_pearson(number * value, number * (1 - value))
        exact[name] = Interval(value, *ends).times(100)
        if number * min(value, 1 - value) < FEW:
            near.add(name)
    if near & {*averaged}:
        exact[AVERAGE] = _mean_interval([exact[b] for b in averaged])
        near.add(AVERAGE)
    intervals = {}
    for name, value in values.items():
        bounds = [interval(value, draws[name]), *([exact[name]] if name in near else [])]
        low, high = min(bound.low for bound in bounds), max(bound.high for bound in bounds)
        intervals[name] = Interval(value, max(low, 0.0), min(high, 100.0))
    return Accuracies(intervals, draws)


def clopper_pearson(right: float, wrong: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for numbers of right and wrong answers."""
    low = float(betaincinv(right, wrong + 1, TAIL)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, wrong, 1 - TAIL)) if wrong > 0 else 1.0
    return low, high


def _effective_problems(correct: Array) -> float:
    """Return how many independent problems would have the variance of the averages of (S, P, N) verdicts.

    It is P where these do not vary.
    """
    means = correct.mean(axis=(0, 2))
    value, number = float(means.mean()), len(means)
    variance = float(means.var(ddof=1)) / number if number > 1 else 0.0
    if value in (0.0, 1.0) or variance == 0:
        return float(number)
    return min(value * (1 - value) / variance, float(correct.size))


def _mean_interval(estimates: Sequence[Interval]) -> Interval:
    """Return the mean of independent values with an interval from theirs.

    Source: MOVER, Zou and Donner, Statistics in Medicine 27, 2008.
    """
    number = len(estimates)
    value = fsum(estimate.value for estimate in estimates) / number
    below = sqrt(fsum((estimate.value - estimate.low) ** 2 for estimate in estimates)) / number
    above = sqrt(fsum((estimate.high - estimate.value) ** 2 for estimate in estimates)) / number
    return Interval(value, value - below, value + above)


def mean_of_seeds(values: Sequence[float], least: float = -inf, most: float = inf) -> Interval:
    """Return the mean of one value per training seed, with Student's interval; one value has none.

    Unlike a bootstrap of few seeds, it is not too short if values are normally distributed over seeds. It
    ends at `least` and `most`, the limits of the quantity, as 0 and 100 of a share in percent.
    """
    if not all(map(isfinite, values)):
        return UNKNOWN
    mean = fsum(values) / len(values)
    half = _student(len(values) - 1) * _standard_error(values)
    # Without an interval the comparison with nan keeps nan.
    low, high = mean - half, mean + half
    return Interval(mean, least if low < least else low, most if high > most else high)


def ratio_of_seeds(values: Sequence[float]) -> Interval:
    """Return the geometric mean of one ratio per training seed, from logarithms; 0 counts as 1e-9."""
    return mean_of_seeds(_logarithms(values)).map(exp)


def detectable_difference(differences: Sequence[float]) -> float:
    """Return the mean difference that Student's test over pairs finds with a power of some 80 %.

    It is the sum of the quantiles at 97.5 and 80 % times the standard error, close to the noncentral t. If
    all are equal it is nan: they say nothing of what others would be.
    """
    if len({*differences}) == 1:
        return nan
    freedom = max(len(differences) - 1, 1)
    return float(stdtrit(freedom, 0.975) + stdtrit(freedom, 0.8)) * _standard_error(differences)


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean over trainings; nan if there is none."""
    count = len(values)
    if count < 2 or not all(map(isfinite, values)):
        return nan
    mean = fsum(values) / count
    return sqrt(fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def _student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution, rounded as in printed tables."""
    return round(float(stdtrit(degrees, 0.975)), 3)


def _logarithms(values: Sequence[float]) -> list[float]:
    return [log(max(value, 1e-9)) if isfinite(value) else inf for value in values]


def paired_difference(
    first: Sequence[Array], second: Sequence[Array], draws: Array, rng: np.random.Generator
) -> Difference:
    """Return the difference of two averages over the same benchmarks, paired by problem.

    The average is the unweighted mean over benchmarks. With one training seed on both sides the p-value is
    that of a permutation test, which flips the sign of each problem's difference: it is about two
    checkpoints. With several it is that of the draws, which also vary the seeds: it is about methods, and
    agrees with the interval.

    Verdicts are (S, P, N) for each benchmark; draws (resamples,) are differences in the same resamples.
    """
    value, questions, flips, exact = 0.0, 0.0, np.zeros(RESAMPLES), []
    checkpoints = all(len(cell) == 1 for cell in (*first, *second))
    for a, b in zip(first, second, strict=True):
        ours, theirs = (x.shape[0] * x.shape[2] for x in (a, b))
        unit = ours * theirs
        # Integers, as in `bootstrap_means`: gaps in units of 1 / (ours * theirs).
        gaps = a.sum(axis=(0, 2)) * theirs - b.sum(axis=(0, 2)) * ours
        value += gaps.sum() / unit / len(gaps) / len(first)
        questions += gaps.sum() / unit
        exact.append(_constant(float(gaps.mean()) / unit, len(gaps)))
        if checkpoints:
            signs = rng.choice([-1.0, 1.0], size=(RESAMPLES, len(gaps)))
            flips += (signs @ gaps) / unit / len(gaps) / len(first)
    if checkpoints:
        beyond = int((np.abs(flips) >= abs(value) - TIE).sum())
    else:
        beyond = 2 * min(int((draws <= TIE).sum()), int((draws >= -TIE).sum())) + 1
    # The observed value counts as a draw, so that no p-value is 0.
    p_value = min(1.0, (beyond + 1) / (RESAMPLES + 1))
    bounds = interval(value, draws)
    if bounds.high - bounds.low < TIE:
        bounds = _mean_interval(exact)
    detectable = max(DETECTABLE * float(draws.std()), least_detectable(first))
    return Difference(value, bounds.low, bounds.high, p_value, questions, detectable)


def _constant(gap: float, problems: int) -> Interval:
    """Return the interval of a difference that is the same on all problems: a bootstrap sees no spread.

    Source: Clopper and Pearson, for the share of problems on which it may be any other.
    """
    others = 1 - TAIL ** (1 / problems)
    return Interval(gap, gap - others * (1 + gap), gap + others * (1 - gap))


def least_detectable(cells: Sequence[Array]) -> float:
    """Return a difference below which no test of signs has a power of 80 %.

    The verdicts (S, P, N) are those of the benchmarks. Enough problems must differ, each by one response.
    """
    problems = sum(cell.shape[1] for cell in cells)
    responses: int = max(cell.shape[0] * cell.shape[2] for cell in cells)
    # The share of problems at which a binomial number of them reaches FLIPS with a probability of 80 %.
    needed = betaincinv(FLIPS, problems - FLIPS + 1, 0.8) if problems >= FLIPS else 1.0
    return float(needed) / responses


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method for the number of tests."""
    order, number = np.argsort(p_values, kind="stable"), len(p_values)
    scaled = np.minimum(np.arange(number, 0, -1) * np.take(p_values, order), 1.0)
    adjusted = np.empty(number)
    adjusted[order] = np.maximum.accumulate(scaled)
    return list(map(float, adjusted))


def strongest(
    baselines: Mapping[str, Sequence[Array]], rng: np.random.Generator
) -> tuple[float, dict[str, float]]:
    """Return the cross-fitted average of the strongest baseline in percent, without the bias of the choice.

    Also returned is the share of the halves in which each baseline was the strongest, by the verdicts
    (S, P, N) of each baseline on the same benchmarks.

    If baselines are equal, the expected value is their common one; if one is clearly the strongest, it is
    that one's average. In between a weaker one is chosen in some halves: the value is then too low by less
    than the difference between the two.
    """
    names, cells = [*baselines], [*baselines.values()]
    problems = [_halves(cell.shape[1], rng) for cell in cells[0]]
    seeds = {cell[0].shape[0]: _halves(cell[0].shape[0], rng) for cell in cells}
    halves = [
        [
            np.einsum("hks,sp,hkp->hk", seeds[len(correct)], correct.mean(axis=2), weights)
            for correct, weights in zip(cell, problems, strict=True)
        ]
        for cell in cells
    ]
    # (baselines, 2 halves, SPLITS). Equal averages are ties on every machine: rounding must not choose.
    averages = (100 * np.mean(halves, axis=1)).round(9)
    chosen = averages.argmax(axis=0)
    measured = np.take_along_axis(averages[:, ::-1], chosen[None], axis=0)
    counts = np.bincount(chosen.ravel(), minlength=len(names)) / chosen.size
    return float(measured.mean()), dict(zip(names, counts.tolist(), strict=True))


def _halves(count: int, rng: np.random.Generator) -> Array:
    """Return (2, SPLITS, count) weights of two random halves, each with a sum of 1; one has no halves."""
    if count == 1:
        return np.ones((2, SPLITS, 1))
    first = rng.permuted(np.tile(np.arange(count) < count // 2, (SPLITS, 1)), axis=1)
    halves = np.stack([first, ~first]).astype(float)
    weights: Array = halves / halves.sum(axis=2, keepdims=True)
    return weights


def over_strongest(
    ours: Array, baselines: Mapping[str, Sequence[Array]], draws: Mapping[str, Array]
) -> tuple[float, Array]:
    """Return the cross-fitted average of the strongest baseline, and resamples of the relative gain over it.

    All are in percent; `ours` and `draws` are (resamples,), verdicts (S, P, N) for each benchmark. An
    average is at least 0, and a baseline's 1e-9.
    """
    value, shares = strongest(baselines, np.random.default_rng(SEED))
    mixed = np.sum([share * draws[name] for name, share in shares.items()], axis=0)
    # Resamples vary about the mixture of the baselines; its level is the cross-fitted one.
    theirs = np.maximum(mixed + value - mixed.mean(), 1e-9)
    gain: Array = 100 * (np.maximum(ours, 0.0) / theirs - 1)
    return value, gain
