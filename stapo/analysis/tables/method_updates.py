"""What whole methods make of the same weights and the same rollout: single rollouts, over base models."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import QUANTITIES
from stapo.analysis.table import Column, Table, with_interval
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.exhibits import Exhibit
from stapo.records.interventions import ArmRecord, Repetition

EXHIBIT = Exhibit(
    order=96, title="Methods with the same weights and rollout", needs="method-interventions"
)
SHOWN = ("entropy", "tail_mass", "reward", "kl", "cosine")


class Row(NamedTuple):
    """One method at the checkpoints of a training's method, or at the base models."""

    at: str
    method: str
    repetitions: dict[str, list[Repetition]]
    """Base model -> repetitions at its checkpoints."""

    def over_bases(self, value: Callable[[Repetition, ArmRecord], float]) -> Interval:
        """Return the mean over base models of the means over repetitions."""
        means = [
            float(np.mean([value(one, one.methods[self.method]) for one in own]))
            for own in self.repetitions.values()
        ]
        return mean_of_seeds(means)


def rows_of(artefacts: Artefacts) -> list[Row]:
    """Return the rows: for the base models and for each method of the checkpoints."""
    study, groups = artefacts.study, dict[str, dict[str, list[Repetition]]]()
    for one in study.intervened():
        name = one.run.method if one.run else "base"
        done = artefacts.intervention(one).numbers.repetitions
        groups.setdefault(name, {}).setdefault(one.size, []).extend(done)
    methods = study.interventions.methods
    return [Row(study.title(at), name, own) for at, own in groups.items() for name in methods]


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method."""
    study, rows = artefacts.study, rows_of(artefacts)
    first = study.interventions.methods[0]
    has_tail = rows[0].over_bases(lambda one, _: float(one.tail_mass is not None)).value > 0
    shown: Sequence[str] = [name for name in SHOWN if has_tail or name != "tail_mass"]

    def column(name: str) -> Column[Row]:
        of, absolute = QUANTITIES[name].of, name in ("kl", "cosine")

        def value(one: Repetition, arm: ArmRecord) -> float:
            return of(one, arm) - (0.0 if absolute else of(one, one.methods[first]))

        def text(row: Row) -> str:
            return with_interval(row.over_bases(value), ".2g" if absolute else "+.2g")

        return Column(QUANTITIES[name].heading, text, text=True)

    return Table(
        columns=[
            Column("Checkpoints", lambda row: row.at, text=True),
            Column("Method", lambda row: study.title(row.method), text=True),
            Column(
                "Touched [%]",
                lambda row: (
                    row.over_bases(lambda one, arm: 100 * arm.silenced / max(one.tokens, 1)).value
                ),
                ".3g",
            ),
            *map(column, shown),
        ],
        rows=rows,
        caption=(
            f"All updates with one rollout, from the same weights, minus what {study.title(first)} makes of "
            f"it (cosine and KL divergence themselves), in {study.interventions.repetitions} repetitions. "
            f"Means of {len(rows[0].repetitions)} base models with 95 % intervals over them (Student's t)."
        ),
        notes=[
            "Touched: tokens whose weight in the gradient the method changes. Cosine: of the change of the "
            "weights with that of the first method.",
        ],
    )
