"""Stability of the trainings as numbers, by the definitions of docs/stability.md."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, nan

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.stability import (
    COLLAPSE,
    EXPLOSION,
    ONE_SEED,
    EntropyNumbers,
    entropies,
    spread_of_seeds,
    warm_up_steps,
)
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.evaluation.statistics import Interval, mean_of_seeds, ratio_of_seeds
from stapo.exhibits import Exhibit
from stapo.study import Study

EXHIBIT = Exhibit(order=20, title="Stability")


@dataclass(frozen=True)
class StabilityRow:
    """A method at a size: numbers of its trainings, by seed."""

    size: str
    title: str
    entropy: list[EntropyNumbers]


def _level(row: StabilityRow) -> Interval:
    """Return the mean entropy after the warm-up; its interval ends at 0, as entropies do."""
    found = mean_of_seeds([one.level for one in row.entropy])
    return replace(found, low=max(found.low, 0) if isfinite(found.low) else nan)


def _ratio(row: StabilityRow, name: str) -> Interval:
    return ratio_of_seeds([getattr(one, name) for one in row.entropy])


def _beyond(ratios: Iterable[float], limit: float) -> str:
    """Return how many known ratios are further from 1 than a limit."""
    found = [ratio < limit < 1 or 1 < limit < ratio for ratio in ratios if isfinite(ratio)]
    return f"{sum(found)} of {len(found)}"


COLUMNS: list[Column[StabilityRow]] = [
    SIZE,
    METHOD,
    Column("Training seeds", lambda row: len(row.entropy)),
    estimated("Entropy after warm-up [nats]", _level, ".3f"),
    estimated("Spread of entropy [%]", lambda row: spread_of_seeds(row.entropy), ".1f"),
    estimated("Lowest entropy [ratio]", lambda row: _ratio(row, "lowest"), ".2f"),
    estimated("Highest entropy [ratio]", lambda row: _ratio(row, "highest"), ".2f"),
    Column("Collapsed", lambda row: _beyond((one.lowest for one in row.entropy), COLLAPSE)),
    Column("Exploded", lambda row: _beyond((one.highest for one in row.entropy), EXPLOSION)),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of stability, a row per size and method."""
    study = artefacts.study
    return Table(
        columns=COLUMNS,
        rows=[
            StabilityRow(size, study.method(name).title, entropies(artefacts, size, name))
            for size in study.run.sizes
            for name in study.run.methods
        ],
        caption="Stability of the trainings by the definitions of docs/stability.md: entropy after a "
        f"warm-up of {warm_up_steps(study)} steps. In brackets: 95 % intervals over training seeds "
        "(Student's t).",
        notes=[*_notes(study)],
    )


def _notes(study: Study) -> Iterator[str]:
    yield (
        "Lowest and highest: the moving mean of the entropy after the warm-up, relative to the higher and to "
        "the lower one of its values at the start and after the warm-up. Collapsed: lowest below "
        f"{COLLAPSE:g}; exploded: highest above {EXPLOSION:g}. These limits are our choice."
    )
    if len(study.run.seeds) == 1:
        yield ONE_SEED
