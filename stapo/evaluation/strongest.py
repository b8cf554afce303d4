"""The gain over the strongest of several baselines, corrected for having chosen it on the same data.

The highest of several noisy averages is too high on average. A gain over it is too low, and choosing anew in
each bootstrap resample makes it lower again. Cross-fitting chooses the strongest baseline on one half of the
problems and of the training seeds, and measures it on the other half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stapo.evaluation.statistics import Array

SPLITS = 400
"""Random halves, each used both ways."""
SEED = 0


@dataclass(frozen=True)
class Strongest:
    """What the strongest baseline reaches, without the bias of the choice."""

    value: float
    """Its average on problems and seeds that did not choose it, in percent."""
    shares: dict[str, float]
    """Baseline -> share of the halves in which it was the strongest."""


def strongest(baselines: Mapping[str, Sequence[Array]], rng: np.random.Generator) -> Strongest:
    """Return the cross-fitted average of the strongest baseline.

    If baselines are equal, the expected value is their common one; if one is clearly the strongest, it is
    that one's average. In between a weaker one is chosen in some halves: the value is then too low by less
    than the difference between the two.

    Args:
        baselines: name -> verdicts (S, P, N) of each benchmark, with the same problems for all.
        rng: random generator of the halves, the same halves for all baselines.
    """
    names, cells = [*baselines], [*baselines.values()]
    problems = [_halves(cell.shape[1], rng) for cell in cells[0]]
    seeds = {cell[0].shape[0]: _halves(cell[0].shape[0], rng) for cell in cells}
    # (baselines, 2 halves, SPLITS), in percent.
    averages = 100 * np.array([_averages(cell, problems, seeds[len(cell[0])]) for cell in cells])
    # Equal averages are ties on every machine: rounding must not choose between them.
    averages = averages.round(9)
    chosen = averages.argmax(axis=0)
    measured = np.take_along_axis(averages[:, ::-1], chosen[None], axis=0)
    counts = np.bincount(chosen.ravel(), minlength=len(names)) / chosen.size
    return Strongest(float(measured.mean()), dict(zip(names, counts.tolist(), strict=True)))


def _halves(count: int, rng: np.random.Generator) -> Array:
    """Return (2, SPLITS, count) weights of two random halves, each with a sum of 1; one has no halves."""
    if count == 1:
        return np.ones((2, SPLITS, 1))
    first = rng.permuted(np.tile(np.arange(count) < count // 2, (SPLITS, 1)), axis=1)
    halves = np.stack([first, ~first]).astype(float)
    weights: Array = halves / halves.sum(axis=2, keepdims=True)
    return weights


def _averages(cell: Sequence[Array], problems: Sequence[Array], seeds: Array) -> Array:
    """Return (2, SPLITS) averages over the benchmarks in each half."""
    parts = [
        np.einsum("hks,sp,hkp->hk", seeds, correct.mean(axis=2), halves)
        for correct, halves in zip(cell, problems, strict=True)
    ]
    mean: Array = np.mean(parts, axis=0)
    return mean


def of_strongest(
    baselines: Mapping[str, Sequence[Array]], draws: Mapping[str, Array]
) -> tuple[float, Array]:
    """Return the cross-fitted average of the strongest baseline in percent, and its resamples.

    Args:
        baselines: name -> verdicts (S, P, N) of each benchmark.
        draws: name -> (resamples,) averages in percent.
    """
    found = strongest(baselines, np.random.default_rng(SEED))
    mixed = np.sum([share * draws[name] for name, share in found.shares.items()], axis=0)
    # Resamples vary about the mixture of the baselines; its level is the cross-fitted one.
    return found.value, mixed + found.value - mixed.mean()


def relative_gain(ours: Array, theirs: Array) -> Array:
    """Return (resamples,) relative gains in percent; an average is at least 0, and a baseline's 1e-9."""
    gain: Array = 100 * (np.maximum(ours, 0.0) / np.maximum(theirs, 1e-9) - 1)
    return gain
