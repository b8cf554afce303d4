"""Accuracy and stability of methods that differ in one argument of their token selection."""

from stapo.analysis.ablation import LABELS, Point, points
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import shown_benchmarks
from stapo.analysis.curves import accuracy_label
from stapo.analysis.stability import ONE_SEED
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.exhibits import Exhibit
from stapo.study import Study
from stapo.study.study import families

EXHIBIT = Exhibit(order=30, title="Ablation and sensitivity", needs="ablation")


def make(artefacts: Artefacts) -> Table:
    """Return the table of the same numbers as the figure, a row per size, argument and method."""
    study = artefacts.study
    rows = [
        point
        for family in families(study)
        for size in study.run.sizes
        for point in points(artefacts, family, size)
    ]
    return Table(
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
