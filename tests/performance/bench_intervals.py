"""How often 95 % intervals contain the truth when some trainings collapse: a simulation (`make bench`).

A training reaches 70 points, or 20 if it collapses, with a standard deviation of 4. Of each number of seeds
and share of collapses 2,000 studies are drawn; intervals are those of `stapo.evaluation.statistics`.
"""

from collections.abc import Callable

import numpy as np

from stapo.evaluation.statistics import (
    bootstrap_means,
    exact_p_value,
    interval,
    mean_of_seeds,
    ratio_between,
    seed_choices,
)

STUDIES, RESAMPLES = 2_000, 1_000
GOOD, BAD, SPREAD = 70.0, 20.0, 4.0
ONE_PROBLEM = np.ones((RESAMPLES, 1))
"""Problems do not vary here: trainings alone do."""
rng = np.random.default_rng(0)


def trainings(seeds: int, collapsed: float) -> np.ndarray:
    """Return the accuracy of each training, (seeds,), in points."""
    bad = rng.random(seeds) < collapsed
    return np.where(bad, BAD, GOOD) + rng.normal(0, SPREAD, seeds)


def mean(collapsed: float) -> float:
    """Return the mean of all trainings that a method could give."""
    return GOOD + collapsed * (BAD - GOOD)


def resampled(values: np.ndarray) -> np.ndarray:
    """Return (RESAMPLES,) means, as in the tables of accuracy."""
    chosen = seed_choices(len(values), rng, RESAMPLES)
    return bootstrap_means(values[:, None, None], ONE_PROBLEM, chosen)


def covered(truth: float, draw: Callable[[], tuple[float, float]]) -> float:
    """Return the share of the studies, in percent, whose interval contains the truth."""
    found = (draw() for _ in range(STUDIES))
    return 100 * float(np.mean([low <= truth <= high for low, high in found]))


def row(seeds: int, collapsed: float) -> list[float]:
    """Return four coverages, of a mean, two differences and a ratio, and the share of false alarms."""

    def of_mean() -> tuple[float, float]:
        found = mean_of_seeds(trainings(seeds, collapsed).tolist())
        return found.low, found.high

    def of_difference(other: float) -> Callable[[], tuple[float, float]]:
        def drawn() -> tuple[float, float]:
            gap = resampled(trainings(seeds, collapsed)) - resampled(trainings(seeds, other))
            found = interval(0.0, gap)
            return found.low, found.high

        return drawn

    def of_ratio() -> tuple[float, float]:
        found = ratio_between(*(trainings(seeds, collapsed).tolist() for _ in range(2)))
        return found.low, found.high

    alarms = [
        exact_p_value(trainings(seeds, collapsed), trainings(seeds, collapsed)) <= 0.05
        for _ in range(STUDIES // 10)
    ]
    return [
        covered(mean(collapsed), of_mean),
        covered(0.0, of_difference(collapsed)),
        covered(mean(collapsed) - GOOD, of_difference(0.0)),
        covered(1.0, of_ratio),
        100 * float(np.mean(alarms)),
    ]


def main() -> None:
    """Print the table of docs/evaluation.md."""
    print(
        "| seeds | collapsed | mean | equal methods | one collapses | ratio of equal | exact test at 5 % |"
    )
    print("|" + "---:|" * 7)
    for seeds in (3, 5, 8):
        for collapsed in (0.0, 0.2, 0.3):
            numbers = " | ".join(f"{value:.0f}" for value in row(seeds, collapsed))
            print(f"| {seeds} | {100 * collapsed:.0f} % | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
