"""Gradient norms of single tokens at all weights, beside those at the logits."""

from itertools import product
from typing import NamedTuple

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.gradients import LIKELY, TITLES, Gradients, gradients_at
from stapo.suite.analysis.evidence.recorded import paper_note
from stapo.suite.analysis.formats import Column, Table, estimated
from stapo.suite.analysis.tables.interventions import title_of
from stapo.suite.evaluation.statistics import UNKNOWN, Interval
from stapo.suite.exhibits import Exhibit
from stapo.suite.records.interventions import Quadrant

EXHIBIT = Exhibit(
    order=45, title="Gradients of tokens at all weights", needs="gradient-interventions"
)


class Row(NamedTuple):
    """A quadrant at a checkpoint."""

    checkpoint: str
    quadrant: Quadrant
    gradients: Gradients


def _norm(place: str, words: str) -> Column[Row]:
    return estimated(f"Mean norm {words}", lambda row: row.gradients.mean(row.quadrant, place))


def _against(place: str, words: str) -> Column[Row]:
    def value(row: Row) -> Interval:
        return UNKNOWN if row.quadrant == LIKELY else row.gradients.against(row.quadrant, place)

    return estimated(f"Against high/high {words} [%]", value, "+.1f")


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per checkpoint and quadrant."""
    study = artefacts.study
    return Table(
        columns=[
            Column("Checkpoint", lambda row: row.checkpoint, text=True),
            Column("Quadrant", lambda row: TITLES[row.quadrant], text=True),
            Column("Tokens", lambda row: int(row.gradients.mask(row.quadrant).sum())),
            _norm("at_logits", "at the logits"),
            _against("at_logits", "at the logits"),
            _norm("at_weights", "at all weights"),
            _against("at_weights", "at all weights"),
        ],
        rows=[
            Row(title_of(study, checkpoint), quadrant, gradients_at(artefacts, [checkpoint]))
            for checkpoint, quadrant in product(study.intervened(), TITLES)
        ],
        caption="Norm of the gradient of single tokens' log-probs, with advantages above 0, by probability "
        f"and entropy: up to {study.interventions.gradient_tokens} of each quadrant in each of "
        f"{study.interventions.repetitions} rollouts. 95 % intervals over the rollouts: they are about "
        "the weights of one checkpoint.",
        notes=[
            "A gradient at the logits is what the paper's bounds are about; at all weights, what an update "
            "moves. Against high/high: by how many percent a mean exceeds that of high probability and high "
            "entropy.",
            paper_note(),
        ],
    )
