"""Stability of trainings as numbers, by the definitions of docs/stability.md."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, isfinite, nan
from typing import NamedTuple

import numpy as np

from stapo.analysis.artefacts import ALL, Artefacts, sizes_of, units_of
from stapo.analysis.curves import Values, moving_mean, values_of, width_of
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.evaluation.statistics import Array, Interval, mean_of_seeds, ratio_of_seeds
from stapo.exhibits import Exhibit
from stapo.study import Study

EXHIBIT = Exhibit(order=20, title="Stability")
START, WARM_UP = 0.01, 0.02
"""Shares of the steps: those at the start, and the warm-up if that of the learning rate is not longer."""
COLLAPSE, EXPLOSION = 0.1, 3.0
"""Entropy, relative to its reference, below which it has collapsed, and above which it has exploded."""
ONE_SEED = "One training seed: values without intervals, and no claim about a method."


@dataclass(frozen=True, kw_only=True)
class EntropyNumbers:
    """Stability of the policy entropy of one training; ratios are nan if their reference is 0 or unknown."""

    start: float
    """Mean entropy of the first steps, nats per token."""
    level: float
    """Mean entropy of the first steps after the warm-up, nats per token."""
    spread: float
    """Standard deviation / mean of the moving mean after the warm-up."""
    lowest: float
    """Minimum of the moving mean after the warm-up / the higher one of start and level."""
    highest: float
    """Maximum of the moving mean after the warm-up / the lower one of start and level."""
    before_collapse: float
    """Share of the steps before the moving mean falls below `COLLAPSE` of the higher one; 1: never."""


def warm_up_steps(study: Study) -> int:
    """Return the number of steps of the warm-up; at least one step follows."""
    steps = study.training.steps
    return min(max(ceil(WARM_UP * steps), study.training.warmup_steps), steps - 1)


def entropy_numbers(entropy: Values, warm_up: int) -> EntropyNumbers:
    """Return the stability of the entropies of all steps, (steps,)."""
    steps, after = len(entropy), entropy[warm_up:]
    smooth = moving_mean(after, width_of(steps))
    first = (entropy[: ceil(START * steps)], after[: ceil(WARM_UP * steps)])
    start, level, mean = (float(part.mean()) for part in (*first, smooth))
    below = np.flatnonzero(smooth < COLLAPSE * max(start, level))
    return EntropyNumbers(
        start=start,
        level=level,
        # A single step has no spread: 0 would be perfect stability.
        spread=_ratio(float(smooth.std()), mean) if len(after) > 1 else nan,
        lowest=_ratio(float(smooth.min()), max(start, level)),
        highest=_ratio(float(smooth.max()), min(start, level)),
        before_collapse=float(warm_up + below[0]) / steps if len(below) else 1.0,
    )


def _ratio(value: float, reference: float) -> float:
    return value / reference if reference > 0 else nan


def entropies(artefacts: Artefacts, size: str, method: str) -> list[EntropyNumbers]:
    """Return the stability of the entropy of each training of a method at a size, by unit and seed."""
    warm_up = warm_up_steps(artefacts.study)
    return [
        entropy_numbers(values_of(artefacts, run, "entropy"), warm_up)
        for unit in units_of(artefacts.study, size, method)
        for run in unit
    ]


class StabilityRow(NamedTuple):
    """A method at a size: numbers of its trainings."""

    size: str
    title: str
    units: int
    """Over which there are intervals: seeds or base models, each of equally many trainings."""
    entropy: list[EntropyNumbers]

    def by_unit(self, name: str) -> Array:
        """Return a number of all trainings, (units, trainings of a unit)."""
        return np.array([getattr(one, name) for one in self.entropy]).reshape(self.units, -1)


def _level(row: StabilityRow) -> Interval:
    """Return the mean entropy after the warm-up; its interval ends at 0, as entropies do."""
    found = mean_of_seeds(row.by_unit("level").mean(1).tolist())
    return replace(found, low=max(found.low, 0) if isfinite(found.low) else nan)


def _of_seeds(row: StabilityRow, name: str) -> Interval:
    means = [ratio_of_seeds(unit).value for unit in row.by_unit(name).tolist()]
    return ratio_of_seeds(means)


def _beyond(ratios: Iterable[float], limit: float) -> str:
    """Return how many known ratios are further from 1 than a limit."""
    found = [ratio < limit < 1 or 1 < limit < ratio for ratio in ratios if isfinite(ratio)]
    return f"{sum(found)} of {len(found)}"


COLUMNS: list[Column[StabilityRow]] = [
    SIZE,
    METHOD,
    Column("Trainings", lambda row: len(row.entropy)),
    estimated("Entropy after warm-up [nats]", _level, ".3f"),
    estimated("Spread of entropy [%]", lambda row: _of_seeds(row, "spread"), ".1f", 100),
    estimated("Lowest entropy [ratio]", lambda row: _of_seeds(row, "lowest"), ".2f"),
    estimated("Highest entropy [ratio]", lambda row: _of_seeds(row, "highest"), ".2f"),
    Column("Collapsed", lambda row: _beyond((one.lowest for one in row.entropy), COLLAPSE)),
    Column("Exploded", lambda row: _beyond((one.highest for one in row.entropy), EXPLOSION)),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of stability, a row per size and method."""
    study = artefacts.study
    return Table(
        columns=COLUMNS,
        rows=[
            StabilityRow(
                size,
                study.title(name),
                len(units_of(study, size, name)),
                entropies(artefacts, size, name),
            )
            for size in sizes_of(study)
            for name in study.run.methods
        ],
        caption="Stability of the trainings by the definitions of docs/stability.md: entropy after a "
        f"warm-up of {warm_up_steps(study)} steps. In brackets: 95 % intervals over training seeds "
        "(Student's t).",
        notes=[
            "Lowest and highest: the moving mean of the entropy after the warm-up, relative to the higher "
            "and to the lower one of its values at the start and after the warm-up. Collapsed: lowest below "
            f"{COLLAPSE:g}; exploded: highest above {EXPLOSION:g}. These limits are our choice.",
            *[ONE_SEED] * (len(study.run.seeds) == 1 and ALL not in sizes_of(study)),
        ],
    )
