"""Share of silenced tokens by position in the response.

Of all tokens in a range of positions of one method and size: the sum of the weights of those that S2T
silences, or would silence, / the sum of all weights. Relative positions are (position + 1/2) / length of
the response in ten equal ranges; absolute positions are in ranges that double in width: 0, 1, 2 to 3, 4 to
7 and so on.

The vertical axis is logarithmic and has no place for 0: a range without a silenced token has no point. A
range without any recorded token has none either.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Panel, Series
from stapo.analysis.evidence.estimates import Estimate, share
from stapo.analysis.evidence.recorded import NO_SILENCED, Recorded, recorded

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


def position_chart(artefacts: Artefacts) -> Chart:
    """Return the share of silenced tokens by relative and by absolute position: two panels per size."""
    found = recorded(artefacts)
    missing = [NO_SILENCED] * (not any(one.silenced.any() for one in found))
    y = Axis(label="silenced by S2T [%]", log=True)
    relative = Axis(label="position / length of the response", low=0.0, high=1.0)
    absolute = Axis(label="position in the response, from 1", log=True)
    return Chart(
        groups=artefacts.titles(),
        columns=2,
        panels=[
            Panel(title=f"{size}, {name} position", x=x, y=y, series=[*_lines(found, size, ranges)])
            for size in artefacts.study.run.sizes
            for name, x, ranges in (
                ("relative", relative, by_relative_position),
                ("absolute", absolute, by_absolute_position),
            )
        ],
        caption="Share of the tokens at a position that S2T silences, or would silence, with 95 % intervals. "
        "Ranges of positions without a silenced token have no point, because a logarithmic axis has no 0. "
        f"{' '.join(missing)}".strip(),
    )


def _lines(
    found: Sequence[Recorded], size: str, ranges: Callable[[Recorded], list[Range]]
) -> Iterator[Series]:
    for one in found:
        if one.size != size:
            continue
        points = ranges(one)
        seen = [point.silenced.value > 0 for point in points]
        if any(seen):
            yield Series(
                name=one.title,
                x=[point.x for point in points],
                y=_where(seen, [100 * point.silenced.value for point in points]),
                low=_where(seen, [100 * point.silenced.low for point in points]),
                high=_where(seen, [100 * point.silenced.high for point in points]),
            )


def _where(seen: Sequence[bool], values: Sequence[float]) -> list[float]:
    return [value if there else nan for value, there in zip(values, seen, strict=True)]
