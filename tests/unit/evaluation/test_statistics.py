"""Statistics against plain loops and against what is known in closed form."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from stapo.evaluation.statistics import (
    average_at_n,
    holm,
    interval,
    paired_difference,
    pass_at_k,
    resample,
)


def draw(seed: int, shape: tuple[int, ...], rate: float = 0.5) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < rate).astype(float)


def test_average_is_over_samples_then_problems_then_seeds():
    correct = np.array([[[1, 0], [1, 1]], [[0, 0], [0, 1]]], dtype=float)
    assert average_at_n(correct) == pytest.approx(0.5 * (0.75 + 0.25))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(k):
    correct = draw(0, (1, 20, 5), 0.3)
    hits = [
        any(row[i] for i in subset) for row in correct[0] for subset in combinations(range(5), k)
    ]
    # A ratio of factorials through logarithms: a few units in the last place.
    assert pass_at_k(correct, k) == pytest.approx(sum(hits) / (20 * comb(5, k)), rel=1e-12)


@pytest.mark.parametrize("k", [0, 6])
def test_pass_at_k_refuses_what_it_cannot_estimate(k):
    with pytest.raises(ValueError, match="expected 1 to 5"):
        pass_at_k(draw(0, (1, 2, 5)), k)


def test_the_bootstrap_agrees_with_a_plain_loop():
    correct = draw(1, (3, 40, 4))
    fast = resample(correct, np.random.default_rng(0))
    rng, slow = np.random.default_rng(1), []
    for _ in range(4000):
        seeds, problems = rng.integers(3, size=3), rng.integers(40, size=40)
        slow.append(correct[seeds][:, problems].mean())
    # Monte Carlo of 4,000 and 10,000 draws: standard error of a spread about 1 %, allowed 5 %.
    assert fast.mean() == pytest.approx(np.mean(slow), abs=0.003)
    assert fast.std() == pytest.approx(np.std(slow), rel=0.05)


def test_the_interval_covers_as_it_says():
    rng, covered = np.random.default_rng(2), 0
    for i in range(300):
        correct = draw(i, (1, 100, 1), 0.7)
        bounds = interval(average_at_n(correct), resample(correct, rng, 1000))
        covered += bounds.low <= 0.7 <= bounds.high
    # 300 trials at 95 %: standard deviation 1.3 points; the percentile bootstrap is a little short.
    assert 0.90 <= covered / 300 <= 0.98


def test_samples_of_one_problem_are_not_independent_observations():
    few = draw(3, (1, 50, 1))
    repeated = np.repeat(few, 64, axis=2)
    spreads = [resample(c, np.random.default_rng(0)).std() for c in (few, repeated)]
    assert spreads[0] == pytest.approx(spreads[1])


def test_the_same_seed_gives_the_same_numbers():
    correct = draw(4, (2, 30, 4))
    first, second = (resample(correct, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, resample(correct, np.random.default_rng(6)))


def test_paired_differences_see_what_unpaired_ones_cannot():
    base = np.repeat(draw(5, (1, 200, 1)), 4, axis=2)
    better = base.copy()
    better[0, :10] = 1.0
    found = paired_difference([better], [base], np.random.default_rng(0))
    assert found.value == pytest.approx((better - base).mean())
    assert found.low >= 0
    assert found.p_value < 0.2
    same = paired_difference([base], [base], np.random.default_rng(0))
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_the_sign_flip_p_value_is_that_of_all_flips():
    gaps = np.array([0.5, 0.25, 0.75, -0.25, 1.0, 0.5])
    first, second = np.clip(gaps, 0, None)[None, :, None], np.clip(-gaps, 0, None)[None, :, None]
    flips = [abs(np.dot(signs, gaps)) for signs in product((-1, 1), repeat=6)]
    exact = np.mean([flip >= abs(gaps.sum()) - 1e-12 for flip in flips])
    found = paired_difference([first], [second], np.random.default_rng(0))
    # 10,000 draws of a share of 6 %: standard error 0.24 points.
    assert found.p_value == pytest.approx(exact, abs=0.01)


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
