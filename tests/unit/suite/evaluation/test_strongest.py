"""The gain over the strongest baseline is not biased by the choice."""

import numpy as np
import pytest

from stapo.suite.evaluation.statistics import (
    bootstrap_means,
    over_strongest,
    problem_counts,
    seed_choices,
    strongest,
)

SEEDS, PROBLEMS, SAMPLES, RESAMPLES = 4, 60, 4, 400


def verdicts(rate: float, difficulty: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Verdicts (S, P, N) at a mean rate, with problems of unequal difficulty and seeds that differ."""
    level = np.clip(rate + difficulty + rng.normal(0, 0.02, (SEEDS, 1)), 0, 1)
    return (rng.random((SEEDS, PROBLEMS, SAMPLES)) < level[:, :, None]).astype(float)


def gain(rates: dict[str, float], seed: int) -> tuple[np.ndarray, dict[str, float]]:
    """Return value and bounds of the gain of `target` in one world, and the shares."""
    rng = np.random.default_rng(seed)
    difficulty = rng.uniform(-0.3, 0.3, PROBLEMS)
    cells = {name: verdicts(rate, difficulty, rng) for name, rate in rates.items()}
    counts = problem_counts(PROBLEMS, rng, RESAMPLES)
    draws = {
        name: 100 * bootstrap_means(cell, counts, seed_choices(SEEDS, rng, RESAMPLES))
        for name, cell in cells.items()
    }
    baselines = {n: [c] for n, c in cells.items() if n != "target"}
    target = draws.pop("target")
    best, drawn = over_strongest(target, baselines, draws)
    value = 100 * (100 * float(cells["target"].mean()) / best - 1)
    _, shares = strongest(baselines, rng)
    return np.array([value, *np.quantile(drawn, [0.025, 0.975])]), shares


def test_equal_methods_gain_nothing_on_average_and_intervals_cover_that():
    equal = dict.fromkeys(("target", "a", "b", "c"), 0.5)
    found = np.array([gain(equal, seed)[0] for seed in range(80)])
    value, low, high = found.mean(axis=0)
    # Values have a standard deviation of 5 % over the worlds: three standard errors of 80.
    assert abs(value) < 1.7
    # Intervals of a ratio reach higher above than below: 1.4 in the middle, of some 38 % in length.
    assert abs(low + high) / 2 < 3
    assert ((found[:, 1] <= 0) & (found[:, 2] >= 0)).mean() >= 0.93


def test_a_baseline_that_is_clearly_the_strongest_is_the_only_one_that_counts():
    found = [gain({"target": 0.6, "a": 0.5, "b": 0.2}, seed) for seed in range(20)]
    assert all(shares == {"a": 1.0, "b": 0.0} for _, shares in found)
    # A standard deviation of 6 % over the worlds: three standard errors of 20.
    assert np.mean([numbers[0] for numbers, _ in found]) == pytest.approx(20, abs=4)
