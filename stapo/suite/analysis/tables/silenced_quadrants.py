"""Which tokens move the entropy: updates that silence tokens of other quadrants, over base models."""

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.updates import (
    QUANTITIES,
    Updates,
    arm_title,
    measured,
    updates_of,
)
from stapo.suite.analysis.formats import Column, Table, estimated
from stapo.suite.exhibits import Exhibit
from stapo.suite.records.arms import NOTHING

EXHIBIT = Exhibit(
    order=95, title="Updates that silence tokens of other quadrants", needs="quadrant-interventions"
)
SHOWN = ("entropy", "tail_mass", "reward")
CANDIDATES = "random_candidates"


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method of the checkpoints and arm."""
    study = artefacts.study
    names = measured(artefacts, SHOWN)
    arms = [arm for arm in study.interventions.arms if arm != NOTHING]

    def column(name: str, reference: str, words: str) -> Column[Updates]:
        heading = f"{QUANTITIES[name][0]}, minus {words}"
        return estimated(heading, lambda row: row.change(name, reference), "+.2g")

    return Table(
        columns=[
            Column("Checkpoints", lambda row: row.at, text=True),
            Column("Arm", lambda row: arm_title(study, row.name), text=True),
            *(column(name, NOTHING, "nothing silenced") for name in names),
            *(column(name, "random", "random tokens") for name in names),
            *([column("entropy", CANDIDATES, "random candidates")] if CANDIDATES in arms else []),
        ],
        rows=updates_of(artefacts, arms),
        caption=f"One update of a checkpoint, in {study.interventions.repetitions} repetitions: arms that "
        "silence equally many tokens. Means of "
        f"{len({checkpoint.model for checkpoint in study.intervened()})} base models with 95 % intervals "
        "over them (Student's t); checkpoints of one base model are averaged first.",
        notes=[
            "Read first: entropy, minus random tokens; then, whether low entropy matters: minus random "
            "candidates. All other columns are secondary."
        ],
    )
