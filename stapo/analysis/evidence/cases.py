"""Silenced tokens in context, as in the paper's tables of cases, chosen by a rule and not by hand.

Of each method and size: the silenced tokens with the largest gradient norms, and a random sample of all
silenced tokens of its trainings (a token is drawn with a probability proportional to its weight, by a hash
of its place). Under methods that silence nothing, these are tokens that S2T would have silenced.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stapo.analysis.evidence.categories import TITLES, category_of
from stapo.analysis.evidence.cells import literal, top_text
from stapo.analysis.evidence.recorded import Recorded, order_of

LARGEST, RANDOM = 3, 3
"""Number of cases of each choice, per method and size; our choice."""
BEFORE, AFTER = 60, 20
"""Characters of the context that the table shows."""


@dataclass(frozen=True)
class Case:
    """A silenced token."""

    size: str
    title: str
    chosen: str
    seed: int
    step: int
    context: str
    """Text around the token, which is in brackets."""
    token: str
    probability: float
    entropy: float
    advantage: float
    norm: float
    top: str
    """Most likely tokens with their probabilities in percent."""
    category: str
    kept: bool


def cases(one: Recorded) -> Iterator[Case]:
    """Yield the cases of one method and size: those of the largest norms first."""
    silenced = np.flatnonzero(one.silenced)
    norms = np.where(one.measured, one.norm, 0.0)[silenced]
    largest = silenced[np.lexsort((order_of(one.frame)[silenced], -norms))][:LARGEST]
    others = [place for place in drawn_in_order(one, silenced) if place not in largest]
    yield from _cases(one, largest, "largest norm")
    yield from _cases(one, others[:RANDOM], "random")


def drawn_in_order(one: Recorded, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return tokens in the order of random draws with probabilities proportional to their weights."""
    uniform = (order_of(one.frame)[places].astype(float) + 1) / 2.0**64
    drawn: NDArray[np.int64] = places[
        np.argsort(-np.log(uniform) / one.sample.weight[places], kind="stable")
    ]
    return drawn


def _cases(one: Recorded, places: Iterable[int], chosen: str) -> Iterator[Case]:
    norms = one.norm
    for place in places:
        record = one.frame.iloc[int(place)]
        yield Case(
            size=one.size,
            title=one.title,
            chosen=chosen,
            seed=int(record["seed"]),
            step=int(record["step"]),
            context=context_of(record["before"], record["token"], record["after"]),
            token=literal(record["token"]),
            probability=float(record["probability"]),
            entropy=float(record["entropy"]),
            advantage=float(record["advantage"]),
            norm=float(norms[place]),
            top=top_text(record["top_tokens"], record["top_probabilities"]),
            category=TITLES[category_of(record["token"], record["top_tokens"])],
            kept=bool(record["kept"]),
        )


def context_of(before: str, token: str, after: str) -> str:
    """Return the text around a token, on one line and with the token in brackets."""
    start, end = "\u2026" * (len(before) > BEFORE), "\u2026" * (len(after) > AFTER)
    around = f"{start}{before[-BEFORE:]}\u27e6{token}\u27e7{after[:AFTER]}{end}"
    return around.replace("\n", "\u21b5")
