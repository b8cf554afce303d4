"""Classes of tokens by probability, sign of the advantage, and entropy.

Those with A > 0 are the quadrants, and the four classes of v4 and v5; all eight are those of v1 to v3.
"""

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.recorded import (
    Quadrant,
    notes_of,
    paper_note,
    quadrants,
    with_pooled,
)
from stapo.suite.analysis.formats import METHOD, MODEL, RECORDED, Column, Table, estimated
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=40, title="Classes of tokens by probability and entropy")
COLUMNS: list[Column[Quadrant]] = [
    MODEL,
    METHOD,
    Column("Advantage", lambda row: row.advantage, text=True),
    Column("Quadrant", lambda row: row.name, text=True),
    RECORDED,
    estimated("Density [%]", lambda row: row.share, unit=100),
    estimated("Mean gradient norm", lambda row: row.norm),
    estimated("Against high/high [%]", lambda row: row.against, "+.1f"),
    estimated("Of the squared gradient [%]", lambda row: row.gradient_share, unit=100),
    estimated("Predicted entropy change", lambda row: row.entropy_change, "+.2g"),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of classes."""
    recordings = with_pooled(artefacts)
    return Table(
        columns=COLUMNS,
        rows=[row for recording in recordings for row in quadrants(recording, ("> 0", "< 0"))],
        caption="Tokens by sign of the advantage, probability (threshold tau_p) and entropy (threshold tau_h "
        "of S2T in the same mini-batch), estimated from the recorded sample, with 95 % intervals; shares are "
        "in the tokens with the same sign. Gradient norms are of the surrogate at the logits of a token.",
        notes=[
            "v4 and v5 have the four classes with an advantage above 0, v1 to v3 all eight. Tokens of low "
            "probability and low entropy in correct answers are the spurious ones.",
            "Against high/high: by how many percent the mean gradient norm exceeds that of high probability "
            "and high entropy, which is compared with no other.",
            "The entropy change is that of the lemma of v4 and v5, -p (log p + H) A, up to a positive factor "
            "(the expectation of A is taken as 0). Learning potential, a column of v1 to v3, is not shown: "
            "its formula is not known here.",
            paper_note(),
            *notes_of(recordings),
        ],
    )
