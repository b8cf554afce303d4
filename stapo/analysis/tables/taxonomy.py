"""The four classes of tokens of v4 and v5: probability and entropy of tokens with A > 0."""

from typing import TYPE_CHECKING

from stapo.analysis.table import Table
from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts

EXHIBIT = Exhibit(order=50, title="Classes of tokens (v4 and v5)")


def make(artefacts: "Artefacts") -> Table:
    """Return the classes of v4 and v5."""
    from stapo.analysis.evidence.quadrants import class_table

    what = "The four classes of v4 and v5: tokens of correct answers (advantage > 0)."
    return class_table(artefacts, ["> 0"], what)
