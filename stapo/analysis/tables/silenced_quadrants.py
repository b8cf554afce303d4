"""Which tokens move the entropy: updates that silence tokens of other quadrants, over base models."""

from collections.abc import Iterator
from typing import NamedTuple

from stapo.analysis import interventions as effects
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import QUANTITIES, arm_title, over_bases
from stapo.analysis.table import Column, Table, with_interval
from stapo.exhibits import Exhibit
from stapo.records.arms import NOTHING
from stapo.study import Study

EXHIBIT = Exhibit(
    order=95, title="Updates that silence tokens of other quadrants", needs="quadrant-interventions"
)
SHOWN = ("entropy", "tail_mass", "reward")


class Row(NamedTuple):
    """One arm at the checkpoints of a method, or at the base models."""

    method: str | None
    arm: str


def rows_of(study: Study) -> Iterator[Row]:
    """Yield all arms but the first, for the base models and for each method."""
    methods = [one.run.method if one.run else None for one in study.intervened()]
    for method in dict.fromkeys(methods):
        for arm in study.interventions.arms:
            if arm != NOTHING:
                yield Row(method, arm)


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method and arm."""
    study = artefacts.study
    first = artefacts.intervention(study.intervened()[0]).numbers.repetitions
    names = [name for name in effects.quantities_of(first) if name in SHOWN]

    def column(name: str, reference: str, words: str) -> Column[Row]:
        def shown(row: Row) -> str:
            if row.arm == reference:
                return ""
            found = over_bases(artefacts, name, row.arm, reference, row.method)
            return with_interval(found, "+.2g")

        return Column(f"{QUANTITIES[name].heading}, minus {words}", shown, text=True)

    number = len({one.size for one in study.intervened()})
    return Table(
        columns=[
            Column(
                "Checkpoints",
                lambda row: study.title("base" if row.method is None else row.method),
                text=True,
            ),
            Column("Arm", lambda row: arm_title(study, row.arm), text=True),
            *(column(name, NOTHING, "nothing silenced") for name in names),
            *(column(name, "random", "random tokens") for name in names),
        ],
        rows=[*rows_of(study)],
        caption=(
            f"One update of a checkpoint, in {study.interventions.repetitions} repetitions: arms that "
            f"silence equally many tokens. Means of {number} base models with 95 % intervals over them "
            "(Student's t); checkpoints of one base model are averaged first."
        ),
        notes=["Read first: entropy, minus random tokens. All other columns are secondary."],
    )
