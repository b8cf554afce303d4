"""The eight classes of tokens of v1 to v3: probability, sign of the advantage, and entropy."""

from typing import TYPE_CHECKING

from stapo.analysis.table import Table
from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts

EXHIBIT = Exhibit(order=60, title="Classes of tokens (v1 to v3)")


def make(artefacts: "Artefacts") -> Table:
    """Return the classes of v1 to v3."""
    from stapo.analysis.evidence.quadrants import class_table

    what = "The eight classes of v1 to v3: tokens with an advantage other than 0."
    unknown = (
        "Learning potential, a column of v1 to v3, is not shown: its formula is not known here."
    )
    return class_table(artefacts, ["> 0", "< 0"], what, unknown)
