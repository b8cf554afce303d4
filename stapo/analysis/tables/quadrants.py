"""Quadrants of probability and entropy of the tokens of correct answers."""

from typing import TYPE_CHECKING

from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts
    from stapo.analysis.evidence.quadrants import Quadrant

EXHIBIT = Exhibit(order=40, title="Quadrants of probability and entropy")
COLUMNS: "list[Column[Quadrant]]" = [
    SIZE,
    METHOD,
    Column("Quadrant", lambda row: row.name, text=True),
    Column("Recorded", lambda row: row.tokens.records, ",d"),
    estimated("Tokens", lambda row: row.tokens, ",.0f"),
    estimated("Density [%]", lambda row: row.share, unit=100),
    estimated("Mean gradient norm", lambda row: row.norm),
    estimated("Against high/high [%]", lambda row: row.against, "+.1f"),
    estimated("Of the squared gradient [%]", lambda row: row.gradient_share, unit=100),
]


def make(artefacts: "Artefacts") -> Table:
    """Return the table of quadrants."""
    from stapo.analysis.evidence.quadrants import paper_note, quadrants
    from stapo.analysis.evidence.recorded import notes_of, recorded

    found = recorded(artefacts)
    return Table(
        columns=COLUMNS,
        rows=[row for one in found for row in quadrants(one)],
        caption="Tokens of correct answers (advantage > 0) by probability (threshold tau_p) and entropy "
        "(threshold tau_h of S2T in the same mini-batch), estimated from the recorded sample, with 95 % "
        "intervals. Gradient norms are of the surrogate at the logits of a token.",
        notes=[
            "Against high/high: by how many percent the mean gradient norm exceeds that of high probability "
            "and high entropy, which is compared with no other.",
            paper_note(),
            *notes_of(found),
        ],
    )
