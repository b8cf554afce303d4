"""Silenced tokens in context, as in the paper's tables of cases, chosen by a rule and not by hand.

Of each method and model: the silenced tokens with the largest gradient norms, and a random sample of all
silenced tokens of its trainings. Under methods that silence nothing, these are tokens that S2T would have
silenced.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.recorded import NO_SILENCED, Recorded, recorded
from stapo.suite.analysis.formats import METHOD, MODEL, Column, Table
from stapo.suite.exhibits import Exhibit
from stapo.suite.text import token_signs

EXHIBIT = Exhibit(order=80, title="Silenced tokens in context")
LARGEST, RANDOM = 3, 3
"""Number of cases of each choice, per method and model; our choice."""
BEFORE, AFTER = 60, 20
"""Characters of the context that the table shows."""
COLUMNS: list[Column[Any]] = [
    MODEL,
    METHOD,
    Column("Seed", lambda row: row.seed),
    Column("Step", lambda row: row.step),
    Column("Chosen", lambda row: row.chosen, text=True),
    Column("Context", lambda row: context_of(row.before, row.token, row.after), text=True),
    Column("Token", lambda row: token_signs(row.token), text=True),
    Column("p [%]", lambda row: 100 * row.probability, ".3g"),
    Column("Entropy [nats]", lambda row: row.entropy, ".3f"),
    Column("Advantage", lambda row: row.advantage, "+.2f"),
    Column("Gradient norm", lambda row: row.norm, ".3g"),
    Column("Most likely, %", lambda row: _top_text(row), text=True),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of cases."""
    rows = [row for recording in recorded(artefacts) for row in cases(recording)]
    return Table(
        columns=COLUMNS,
        rows=rows,
        caption="Candidates that S2T silences, or would silence: of each method "
        f"the {LARGEST} with the largest gradient norms, and {RANDOM} drawn at random. The token is in "
        "brackets in its context.",
        notes=[NO_SILENCED] * (not rows),
    )


def cases(recording: Recorded) -> Iterator[Any]:
    """Yield the cases of one method and model, the largest norms first: rows of the records, and more."""
    norms = np.nan_to_num(np.where(recording.silenced, recording.norm, 0.0))
    shuffled = recording.shuffled(recording.silenced)
    largest = shuffled[np.argsort(-norms[shuffled], kind="stable")][:LARGEST]
    others = [place for place in shuffled if place not in largest][:RANDOM]
    places = [*largest, *others]
    chosen = ["largest norm"] * len(largest) + ["random"] * len(others)
    rows = recording.frame.iloc[places].assign(chosen=chosen, norm=recording.norm[places])
    for record in rows.assign(model=recording.model, title=recording.title).to_dict("records"):
        yield SimpleNamespace(**{str(name): value for name, value in record.items()})


def _top_text(row: Any) -> str:
    """Return the most likely tokens with their probabilities in percent; empty if they are unknown."""
    if row.top_tokens is None or row.top_probabilities is None:
        return ""
    pairs = zip(row.top_tokens, row.top_probabilities, strict=True)
    return ", ".join(f"{token_signs(token)} {100 * float(p):.3g}" for token, p in pairs)


def context_of(before: str, token: str, after: str) -> str:
    """Return the text around a token, on one line and with the token in brackets."""
    start, end = "\u2026" * (len(before) > BEFORE), "\u2026" * (len(after) > AFTER)
    around = f"{start}{before[-BEFORE:]}\u27e6{token}\u27e7{after[:AFTER]}{end}"
    return around.replace("\n", "\u21b5")
