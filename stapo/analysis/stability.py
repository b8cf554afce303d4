"""Stability of trainings as numbers, by the definitions of docs/stability.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, nan

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import Values, moving_mean, values_of, width_of
from stapo.evaluation.statistics import Interval, ratio_of_seeds
from stapo.study import Study, TrainingRun

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
    """Return the stability of the entropy of each training of a method at a size, by seed."""
    warm_up = warm_up_steps(artefacts.study)
    return [
        entropy_numbers(values_of(artefacts, TrainingRun(size, method, seed), "entropy"), warm_up)
        for seed in artefacts.study.run.seeds
    ]


def spread_of_seeds(found: Sequence[EntropyNumbers]) -> Interval:
    """Return the spread of the entropy in percent, over the trainings of a method."""
    ratio = ratio_of_seeds([one.spread for one in found])
    return Interval(*(100 * value for value in (ratio.value, ratio.low, ratio.high)))
