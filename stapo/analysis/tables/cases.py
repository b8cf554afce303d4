"""Silenced tokens in context, as in the paper's tables of cases, chosen by a rule and not by hand."""

from typing import TYPE_CHECKING

from stapo.analysis.table import METHOD, SIZE, Column, Table
from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from types import SimpleNamespace

    from stapo.analysis.artefacts import Artefacts

EXHIBIT = Exhibit(order=80, title="Silenced tokens in context")
COLUMNS: "list[Column[SimpleNamespace]]" = [
    SIZE,
    METHOD,
    Column("Seed", lambda row: row.seed),
    Column("Step", lambda row: row.step),
    Column("Chosen", lambda row: row.chosen, text=True),
    Column("Context", lambda row: row.context, text=True),
    Column("Token", lambda row: row.token, text=True),
    Column("p [%]", lambda row: 100 * row.probability, ".3g"),
    Column("Entropy [nats]", lambda row: row.entropy, ".3f"),
    Column("Advantage", lambda row: row.advantage, "+.2f"),
    Column("Gradient norm", lambda row: row.norm, ".3g"),
    Column("Most likely, %", lambda row: row.top, text=True),
    Column("Category", lambda row: row.category, text=True),
]


def make(artefacts: "Artefacts") -> Table:
    """Return the table of cases."""
    from stapo.analysis.evidence.cases import LARGEST, RANDOM, cases
    from stapo.analysis.evidence.recorded import NO_SILENCED, recorded
    from stapo.reference import paper

    rows = [row for one in recorded(artefacts) for row in cases(one)]
    stated = [one for one in paper()["notes"] if "category II" in one["text"]]
    return Table(
        columns=COLUMNS,
        rows=rows,
        caption="Candidates that S2T silences, or would silence: of each method "
        f"the {LARGEST} with the largest gradient norms, and {RANDOM} drawn at random. The token is in "
        "brackets in its context. Categories are the paper's, sorted by rules of ours over the token and "
        "the most likely one.",
        notes=[
            *(f"The paper ({one['revision']}): {one['text']}" for one in stated),
            *[NO_SILENCED] * (not rows),
        ],
    )
