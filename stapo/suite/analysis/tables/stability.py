"""Stability of trainings as numbers, by the definitions of docs/stability.md."""

from dataclasses import dataclass
from math import ceil, isfinite, nan

import numpy as np

from stapo.suite.analysis.artefacts import ALL, Artefacts, Trained, models_of, trained
from stapo.suite.analysis.curves import Values, moving_mean, values_of, width_of
from stapo.suite.analysis.formats import METHOD, MODEL, Column, Table, estimated
from stapo.suite.evaluation.statistics import Interval, mean_of_seeds, ratio_of_seeds
from stapo.suite.exhibits import COLLAPSE, EXPLOSION, Exhibit
from stapo.suite.study import Study, TrainingRun

EXHIBIT = Exhibit(order=20, title="Stability")
START, WARM_UP = 0.01, 0.02
"""Shares of the steps: those at the start, and the warm-up if that of the learning rate is not longer."""
ONE_SEED = "One training seed: values without intervals, and no claim about a method."


@dataclass(frozen=True, kw_only=True)
class EntropyNumbers:
    """Stability of the policy entropy of one training; ratios are nan if their reference is 0 or unknown."""

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
        level=level,
        # A single step has no spread: 0 would be perfect stability.
        spread=ratio(float(smooth.std()), mean) if len(after) > 1 else nan,
        lowest=ratio(float(smooth.min()), max(start, level)),
        highest=ratio(float(smooth.max()), min(start, level)),
        before_collapse=float(warm_up + below[0]) / steps if len(below) else 1.0,
    )


def ratio(value: float, reference: float) -> float:
    """Return a value relative to another one; nan if that is 0."""
    return value / reference if reference > 0 else nan


def entropy_of(artefacts: Artefacts, run: TrainingRun) -> EntropyNumbers:
    """Return the stability of the entropy of a training."""
    return entropy_numbers(values_of(artefacts, run, "entropy"), warm_up_steps(artefacts.study))


def _numbers(row: Trained, name: str) -> list[list[float]]:
    return [[getattr(numbers, name) for numbers in unit] for unit in row.units]


def _level(row: Trained) -> Interval:
    """Return the mean entropy after the warm-up."""
    return mean_of_seeds(np.mean(_numbers(row, "level"), axis=1).tolist(), least=0)


def _ratio_over_seeds(row: Trained, name: str) -> Interval:
    return ratio_of_seeds([ratio_of_seeds(unit).value for unit in _numbers(row, name)])


def _beyond(row: Trained, name: str, limit: float) -> str:
    """Return how many known ratios are further from 1 than a limit."""
    known = [ratio for unit in _numbers(row, name) for ratio in unit if isfinite(ratio)]
    return f"{sum(ratio < limit < 1 or 1 < limit < ratio for ratio in known)} of {len(known)}"


COLUMNS: list[Column[Trained]] = [
    MODEL,
    METHOD,
    Column("Trainings", lambda row: sum(map(len, row.units))),
    estimated("Entropy after warm-up [nats]", _level, ".3f"),
    estimated("Spread of entropy [%]", lambda row: _ratio_over_seeds(row, "spread"), ".1f", 100),
    estimated("Lowest entropy [ratio]", lambda row: _ratio_over_seeds(row, "lowest"), ".2f"),
    estimated("Highest entropy [ratio]", lambda row: _ratio_over_seeds(row, "highest"), ".2f"),
    Column("Collapsed", lambda row: _beyond(row, "lowest", COLLAPSE)),
    Column("Exploded", lambda row: _beyond(row, "highest", EXPLOSION)),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of stability, a row per model and method."""
    study = artefacts.study
    return Table(
        columns=COLUMNS,
        rows=trained(study, lambda run: entropy_of(artefacts, run)),
        caption="Stability of the trainings by the definitions of docs/stability.md: entropy after a "
        f"warm-up of {warm_up_steps(study)} steps. In brackets: 95 % intervals over training seeds "
        "(Student's t).",
        notes=[
            "Lowest and highest: the moving mean of the entropy after the warm-up, relative to the higher "
            "and to the lower one of its values at the start and after the warm-up. Collapsed: lowest below "
            f"{COLLAPSE:g}; exploded: highest above {EXPLOSION:g}. These limits are our choice.",
            *[ONE_SEED] * (len(study.run.seeds) == 1 and ALL not in models_of(study)),
        ],
    )
