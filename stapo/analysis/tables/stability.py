"""Stability of the trainings as numbers, by the definitions of docs/stability.md."""

from collections.abc import Iterable, Iterator
from math import isfinite

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import accuracy_label
from stapo.analysis.stability import (
    COLLAPSE,
    EXPLOSION,
    ONE_SEED,
    StabilityRow,
    late_curve,
    mean_above_0,
    spread_of_seeds,
    stability_rows,
    warm_up_steps,
)
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.evaluation.statistics import Interval, ratio_of_seeds
from stapo.exhibits import Exhibit
from stapo.study import Study

EXHIBIT = Exhibit(order=20, title="Stability")


def _ratio(row: StabilityRow, name: str) -> Interval:
    return ratio_of_seeds([getattr(one, name) for one in row.entropy])


def _mean(row: StabilityRow, name: str) -> Interval:
    """Return the mean of a repetition in percent."""
    return mean_above_0(100 * getattr(one, name) for one in row.responses)


def _beyond(ratios: Iterable[float], limit: float) -> str:
    """Return how many known ratios are further from 1 than a limit."""
    found = [ratio < limit < 1 or 1 < limit < ratio for ratio in ratios if isfinite(ratio)]
    return f"{sum(found)} of {len(found)}"


LATE: Column[StabilityRow] = estimated(
    "Best minus last accuracy [points]", lambda row: mean_above_0(row.lost), ".2f"
)
COLUMNS: list[Column[StabilityRow]] = [
    SIZE,
    METHOD,
    Column("Training seeds", lambda row: len(row.entropy)),
    estimated(
        "Entropy after warm-up [nats]",
        lambda row: mean_above_0(one.level for one in row.entropy),
        ".3f",
    ),
    estimated("Spread of entropy [%]", lambda row: spread_of_seeds(row.entropy), ".1f"),
    estimated("Lowest entropy [ratio]", lambda row: _ratio(row, "lowest"), ".2f"),
    estimated("Highest entropy [ratio]", lambda row: _ratio(row, "highest"), ".2f"),
    Column("Collapsed", lambda row: _beyond((one.lowest for one in row.entropy), COLLAPSE)),
    Column("Exploded", lambda row: _beyond((one.highest for one in row.entropy), EXPLOSION)),
    LATE,
    estimated("Repeated 4-grams [%]", lambda row: _mean(row, "repeated"), ".2f"),
    estimated("Looping responses [%]", lambda row: _mean(row, "looping"), ".2f"),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of stability, a row per size and method."""
    study = artefacts.study
    return Table(
        columns=[one for one in COLUMNS if one is not LATE or late_curve(study)],
        rows=stability_rows(artefacts),
        caption=f"Stability of the trainings by the definitions of docs/stability.md: entropy after a "
        f"warm-up of {warm_up_steps(study)} steps, and repetition in the last weights' responses at "
        f"{study.decodings[study.run.decodings[0]].title}. In brackets: 95 % intervals over training seeds "
        "(Student's t).",
        notes=[*_notes(study)],
    )


def _notes(study: Study) -> Iterator[str]:
    yield (
        "Lowest and highest: the moving mean of the entropy after the warm-up, relative to the higher and to "
        "the lower one of its values at the start and after the warm-up. Collapsed: lowest below "
        f"{COLLAPSE:g}; exploded: highest above {EXPLOSION:g}. These limits are our choice."
    )
    if (curve := late_curve(study)) is not None:
        decoding, benchmarks = curve
        yield (
            f"Best minus last accuracy: {accuracy_label(study, benchmarks)}, "
            f"{study.decodings[decoding].title}. The best of several noisy values is too high by chance, so "
            "this difference is above 0 also without degradation."
        )
    if len(study.run.seeds) == 1:
        yield ONE_SEED
