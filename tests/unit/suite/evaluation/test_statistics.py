"""Statistics against plain loops and against what is known in closed form."""

from itertools import combinations
from math import comb, isnan

import numpy as np
import pytest
from programs import python
from scipy.stats import binom, t as student

from stapo.suite.evaluation.statistics import (
    AVERAGE,
    RESAMPLES,
    Accuracies,
    Interval,
    accuracies_of,
    bootstrap_means,
    holm,
    mean_of_seeds,
    paired_difference,
    pass_at_k,
    problem_counts,
    ratio_of_seeds,
    seed_choices,
)


def draw(seed: int, shape: tuple[int, ...], rate: float = 0.5) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < rate).astype(float)


def resample(correct: np.ndarray, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = problem_counts(correct.shape[1], rng, RESAMPLES)
    return bootstrap_means(correct, counts, seed_choices(len(correct), rng, RESAMPLES))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(k):
    correct = draw(0, (1, 20, 5), 0.3)
    hits = [row[list(some)].any() for row in correct[0] for some in combinations(range(5), k)]
    assert pass_at_k(correct, k) == pytest.approx(sum(hits) / (20 * comb(5, k)), rel=1e-12)


def test_the_bootstrap_agrees_with_a_plain_loop():
    correct = draw(1, (3, 40, 4))
    fast, rng, slow = resample(correct), np.random.default_rng(1), []
    for _ in range(4000):
        seeds, problems = rng.integers(3, size=3), rng.integers(40, size=40)
        drawn, every = correct[seeds][:, problems].mean(), correct[:, problems].mean()
        # 4.303: Student's 97.5 % quantile with 2 degrees of freedom.
        slow.append(every + (3 / 2) ** 0.5 * 4.303 / 1.96 * (drawn - every))
    # Monte Carlo of 4,000 and 10,000 draws: standard error of a spread about 1 %, allowed 5 %.
    assert fast.mean() == pytest.approx(np.mean(slow), abs=0.003)
    assert fast.std() == pytest.approx(np.std(slow), rel=0.05)
    # Of one problem, samples are not independent observations.
    few = draw(3, (1, 50, 1))
    assert resample(few).std() == pytest.approx(resample(np.repeat(few, 64, axis=2)).std())


OLD_CPU = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"}
STATISTICS = """
import numpy as np
from stapo.suite.evaluation.statistics import *
rng = np.random.default_rng(3)
cells = [(rng.random((3, 97, 4)) < rate).astype(float) for rate in (0.4, 0.5)]
counts, seeds = problem_counts(97, rng), seed_choices(3, rng)
draws = [bootstrap_means(cell, counts, seeds) for cell in cells]
print([float(x).hex() for x in draws[0]], interval(0.5, draws[0]))
for first, second in ((cells[:1], cells[1:]), ([cells[0][:1]], [cells[1][:1]])):
    print(paired_difference(first, second, draws[0] - draws[1], rng))
print([pass_at_k(cells[0], k).hex() for k in (1, 2, 4)])
"""


@pytest.mark.slow
def test_another_cpu_gives_the_same_bits():
    """Tables are verified where they were not made: sums must not depend on the order of BLAS."""
    run = ("-W", "ignore", "-c", STATISTICS)
    found = [python(*run, **cpu).stdout for cpu in ({}, OLD_CPU)]
    assert found[0] == found[1]
    assert "0x" in found[0]


def test_small_tests_in_closed_form():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_the_interval_over_seeds_is_students_and_a_missing_value_is_not_ignored():
    for count in (2, 3, 5, 60):
        values = np.random.default_rng(count).normal(3, 2, size=count)
        found, scale = mean_of_seeds(values.tolist()), values.std(ddof=1) / count**0.5
        low, high = student.interval(0.95, count - 1, loc=values.mean(), scale=scale)
        # The quantile is rounded to three digits.
        expected = pytest.approx((values.mean(), low, high), abs=1e-3)
        assert (found.value, found.low, found.high) == expected
    assert isnan(mean_of_seeds([2.0]).low)
    assert isnan(mean_of_seeds([2.0], least=0, most=100).high)
    wide = mean_of_seeds([20.0, 90.0])
    assert wide.low < 0
    assert wide.high > 100
    assert mean_of_seeds([20.0, 90.0], least=0, most=100) == Interval(wide.value, 0, 100)
    assert isnan(mean_of_seeds([1.0, float("nan")]).value)


def test_ratios_are_averaged_as_logarithms():
    found = ratio_of_seeds([0.5, 2.0])
    assert (found.value, found.low) == pytest.approx((1, 1 / found.high))
    assert ratio_of_seeds([0.0, 0.0]).value == pytest.approx(1e-9)
    assert isnan(ratio_of_seeds([1.0, float("nan")]).value)


def accuracy(correct: np.ndarray, resamples: int = RESAMPLES) -> Accuracies:
    rng = np.random.default_rng(0)
    counts = {"b": problem_counts(correct.shape[1], rng, resamples)}
    return accuracies_of({"b": correct}, counts, ["b"], rng)


def test_intervals_near_the_ends_cover_the_truth():
    """Exactly, over all numbers of right answers to 30 problems; the bootstrap alone covers 3 % at 0.001."""
    cells = [np.arange(30)[None, :, None] < right for right in range(31)]
    found = [accuracy(cell.astype(float)).values["b"] for cell in cells]
    for truth in (0.001, 0.01, 1 / 30, 2 / 30, 0.2, 0.5, 0.9, 0.99):
        chance = binom.pmf(range(31), 30, truth)
        covered = [one.low <= 100 * truth <= one.high for one in found]
        # Between the ends it is the bootstrap's, which covers 93 % of 30 problems.
        assert chance[covered].sum() > 0.92
    assert found[0].high == pytest.approx(100 * (1 - 0.025 ** (1 / 30)))
    assert found[30].low == pytest.approx(100 * 0.025 ** (1 / 30))
    # Samples of one problem are no independent problems.
    many = accuracy(np.zeros((2, 30, 32))).values
    assert many["b"] == found[0]
    assert 0 < many[AVERAGE].high <= found[0].high


def test_equal_checkpoints_have_an_interval_and_a_detectable_difference():
    rng, right = np.random.default_rng(0), np.ones((1, 30, 1))
    found = paired_difference([right], [right], np.zeros(RESAMPLES), rng)
    assert (found.value, found.p_value) == (0.0, 1.0)
    bound = 1 - 0.025 ** (1 / 30)
    assert (found.low, found.high) == pytest.approx((-bound, bound))
    both = paired_difference([right] * 2, [0 * right] * 2, np.ones(RESAMPLES), rng)
    # Of two benchmarks, independent errors of opposite ends: 2 * bound, over the root of 2.
    assert (both.low, both.high) == pytest.approx((1 - 2**0.5 * bound, 1))
    # Six of 30 problems that differ in the same way have a p-value of 2 / 2^6; a chance of 80 % needs 25 %.
    assert found.detectable == pytest.approx(0.251, abs=0.001)
