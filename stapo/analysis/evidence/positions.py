"""Share of silenced tokens by position in the response.

Of all tokens in a range of positions of one method and size: the sum of the weights of those that S2T
silences, or would silence, / the sum of all weights. Relative positions are (position + 1/2) / length of
the response in ten equal ranges; absolute positions are in ranges that double in width: 0, 1, 2 to 3, 4 to
7 and so on.
"""

from dataclasses import dataclass

import numpy as np

from stapo.analysis.evidence.estimates import Estimate, share
from stapo.analysis.evidence.recorded import Recorded

RELATIVE = 10
"""Number of ranges of relative positions."""


@dataclass(frozen=True)
class Range:
    """A range of positions: where it is drawn, and the share of its tokens that S2T silences."""

    x: float
    silenced: Estimate


def by_relative_position(one: Recorded) -> list[Range]:
    """Return the ranges of the relative positions, from 0 to 1; x is the middle of the range."""
    places = (one.numbers("position") + 0.5) / one.numbers("length")
    index = np.minimum((places * RELATIVE).astype(int), RELATIVE - 1)
    return [
        Range(
            (i + 0.5) / RELATIVE,
            share(one.sample, one.silenced & (index == i), index == i, one.silenced),
        )
        for i in range(RELATIVE)
    ]


def by_absolute_position(one: Recorded) -> list[Range]:
    """Return the ranges of the absolute positions, up to the last recorded one; x is the middle, from 1."""
    places = one.numbers("position").astype(int)
    index = np.array([place.bit_length() for place in places.tolist()], dtype=int)
    return [
        Range(_middle(i), share(one.sample, one.silenced & (index == i), index == i, one.silenced))
        for i in range(int(index.max(initial=-1)) + 1)
    ]


def _middle(index: int) -> float:
    """Return the geometric middle of the positions, counted from 1, with this number of bits from 0."""
    first, last = (0, 0) if index == 0 else (2 ** (index - 1), 2**index - 1)
    return float(((first + 1) * (last + 1)) ** 0.5)
