"""The hyperparameters of the study as run, beside the paper's."""

from typing import TYPE_CHECKING

from stapo.analysis.table import Column, Table
from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts
    from stapo.analysis.hyperparameters import Setting

EXHIBIT = Exhibit(order=100, title="Hyperparameters", sources=frozenset())
COLUMNS: "list[Column[Setting]]" = [
    Column("Setting", lambda row: row.setting, text=True),
    Column("Methods", lambda row: row.methods, text=True),
    Column("This study", lambda row: row.ours, text=True),
    Column("Paper", lambda row: row.paper, text=True),
    Column("Source", lambda row: row.source, text=True),
]


def make(artefacts: "Artefacts") -> Table:
    """Return the table of hyperparameters."""
    from stapo.analysis.hyperparameters import settings

    return Table(
        columns=COLUMNS,
        rows=[*settings(artefacts.study)],
        caption="Hyperparameters of the study as run, beside those of arXiv 2602.15620.",
        notes=[
            "In brackets: how sure it is what the paper states. Settings of baselines are those of their "
            "own papers, as v4 and v5 say."
        ],
    )
