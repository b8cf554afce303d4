"""Ablation and sensitivity: methods that differ in one argument of their token selection."""

from dataclasses import dataclass

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import accuracies, shown_benchmarks
from stapo.analysis.columns import METHOD, SIZE, Column
from stapo.analysis.curves import accuracy_label
from stapo.analysis.grids import Grid
from stapo.analysis.stability import ONE_SEED, entropies, estimated, spread_of_seeds
from stapo.evaluation.statistics import Interval
from stapo.study import Study
from stapo.study.families import Family, families

LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A method of a family at a size."""

    size: str
    argument: str
    mask: str
    value: float
    """Of the argument."""
    title: str
    accuracy: dict[str, Interval]
    """Decoding -> accuracy in percent."""
    spread: Interval
    """Of the entropy, in percent."""


def points(artefacts: Artefacts, family: Family, size: str) -> list[Point]:
    """Return the methods of a family at a size, by the value of the argument.

    Raises:
        DamagedFileError: metrics are missing, damaged or incomplete.
        StaleScoreError: as for `read_scores`.
    """
    return [
        Point(
            size=size,
            argument=family.argument,
            mask=family.title,
            value=value,
            title=artefacts.study.method(method).title,
            accuracy={
                decoding: accuracy_of(artefacts, decoding, size, method)
                for decoding in artefacts.study.run.decodings
            },
            spread=spread_of(artefacts, size, method),
        )
        for value, method in family.members.items()
    ]


def accuracy_of(artefacts: Artefacts, decoding: str, size: str, method: str) -> Interval:
    """Return the accuracy of a method in percent, over the benchmarks of the figures."""
    benchmarks = tuple(shown_benchmarks(artefacts.study))
    return accuracies(artefacts, decoding, benchmarks).values[size, method]


def spread_of(artefacts: Artefacts, size: str, method: str) -> Interval:
    """Return the spread of the entropy of a method in percent."""
    return spread_of_seeds(entropies(artefacts, size, method))


def table(artefacts: Artefacts) -> Grid:
    """Return the table of the same numbers, a row per size, argument and method."""
    study = artefacts.study
    rows = [
        point
        for family in families(study)
        for size in study.run.sizes
        for point in points(artefacts, family, size)
    ]
    return Grid(
        columns=_columns(study),
        rows=rows,
        caption="Methods that differ only in one argument of their token selection, by kind of mask: "
        f"{accuracy_label(study, shown_benchmarks(study))} and spread of the entropy (docs/stability.md), "
        "with 95 % intervals.",
        notes=[ONE_SEED] * (len(study.run.seeds) == 1),
    )


def _columns(study: Study) -> list[Column[Point]]:
    def of(decoding: str) -> Column[Point]:
        heading = f"Accuracy, {study.decodings[decoding].title}"
        return estimated(heading, lambda row: row.accuracy[decoding], ".2f")

    return [
        SIZE,
        Column("Argument", lambda row: LABELS.get(row.argument, row.argument), text=True),
        Column("Mask", lambda row: row.mask, text=True),
        METHOD,
        Column("Value", lambda row: row.value, "g"),
        *map(of, study.run.decodings),
        estimated("Spread of entropy [%]", lambda row: row.spread, ".1f"),
    ]
