"""The most frequent silenced and retained candidates, beside the words of the paper's clouds.

The share of a token is estimated in all candidates of its kind of one method and size: the sum of the
weights of its records / the sum of the weights of the kind. Tokens are compared as text, with their white
space. Those with the same estimate are ordered as text.

A token belongs to one of the paper's clouds if its text without white space at its ends and without regard
to capital letters is a word of the cloud; "digits" of the paper are all tokens of digits. Of the clouds
only these words are known here, so that "not known" says nothing about a token.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stapo.analysis.evidence.cases import literal
from stapo.analysis.evidence.estimates import Estimate, share
from stapo.analysis.evidence.recorded import Recorded
from stapo.reference import confidence, paper

SHOWN = 10
"""Tokens of each kind, per method and size; our choice."""
KINDS = ("silenced", "retained")
DIGITS = "digits"
"""Word of `paper.yaml` for all tokens of digits."""


@dataclass(frozen=True)
class Frequency:
    """How frequent a token is among the silenced or the retained candidates."""

    size: str
    title: str
    kind: str
    rank: int
    token: str
    share: Estimate
    cloud: str
    """Clouds of the paper that contain it."""


def frequencies(one: Recorded, kind: str) -> list[Frequency]:
    """Return the most frequent tokens of a kind, the most frequent first."""
    of_kind = one.is_kind(kind)
    tokens = one.frame["token"].to_numpy(dtype=object)
    weights: dict[str, float] = {}
    for token, weight in zip(tokens[of_kind], one.sample.weight[of_kind], strict=True):
        weights[token] = weights.get(token, 0.0) + weight
    ordered = sorted(weights, key=lambda token: (-round(weights[token], 6), token))
    return [
        Frequency(
            size=one.size,
            title=one.title,
            kind=kind,
            rank=rank,
            token=literal(token),
            share=share(one.sample, of_kind & (tokens == token), of_kind),
            cloud=", ".join(clouds_of(token)) or "not known",
        )
        for rank, token in enumerate(ordered[:SHOWN], start=1)
    ]


def clouds_of(token: str) -> Iterator[str]:
    """Yield the kinds of the paper's clouds that contain a token."""
    word = token.strip()
    for kind in KINDS:
        words = paper()["clouds"][kind]
        listed = word.casefold() in {one.casefold() for one in words} - {DIGITS}
        if listed or (word.isdigit() and DIGITS in words):
            yield kind


def paper_text() -> str:
    """Return what is known of the paper's clouds."""
    stated = paper()["clouds"]
    words = {kind: ", ".join(stated[kind]) for kind in KINDS}
    return (
        f"Known of the paper's clouds ({stated['revision']}, {confidence(stated['confidence'])}): "
        f"silenced mostly {words['silenced']}; retained {words['retained']}."
    )
