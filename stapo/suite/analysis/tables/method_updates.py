"""What whole methods make of the same weights and the same rollout: single rollouts, over base models."""

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.updates import QUANTITIES, Updates, measured, updates_of
from stapo.suite.analysis.formats import Column, Table, estimated
from stapo.suite.exhibits import Exhibit
from stapo.suite.records.interventions import Repetition

EXHIBIT = Exhibit(
    order=96, title="Methods with the same weights and rollout", needs="method-interventions"
)
SHOWN = ("entropy", "tail_mass", "reward", "kl", "cosine")


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method of the checkpoints and method."""
    study = artefacts.study
    methods = study.interventions.methods
    rows, first = updates_of(artefacts, methods), methods[0]

    def column(name: str) -> Column[Updates]:
        minus, form = ("", ".2g") if name in ("kl", "cosine") else (first, "+.2g")
        heading = QUANTITIES[name][0]
        return estimated(heading, lambda row: row.change(name, minus, "methods"), form)

    def touched(row: Updates) -> float:
        def share(repetition: Repetition) -> float:
            return 100 * repetition.methods[row.name].silenced / max(repetition.tokens, 1)

        return row.over_units(share).value

    return Table(
        columns=[
            Column("Checkpoints", lambda row: row.at, text=True),
            Column("Method", lambda row: study.title(row.name), text=True),
            Column("Touched [%]", touched, ".3g"),
            *map(column, measured(artefacts, SHOWN)),
        ],
        rows=rows,
        caption=f"All updates with one rollout, from the same weights, minus what {study.title(first)} makes "
        f"of it (cosine and KL divergence themselves), in {study.interventions.repetitions} repetitions. "
        f"Means of {len(rows[0].units)} base models with 95 % intervals over them (Student's t).",
        notes=[
            "Touched: tokens whose weight in the gradient the method changes. Cosine: of the change of the "
            "weights with that of the first method."
        ],
    )
