"""Share of silenced tokens by position in the response.

Of all tokens in a range of positions of one method and size: the sum of the weights of those that S2T
silences, or would silence, / the sum of all weights. Relative positions are (position + 1/2) / length of
the response in ten equal ranges; absolute positions are in ranges that double in width: 0, 1, 2 to 3, 4 to
7 and so on. A range is drawn at its middle, the geometric one of absolute positions, which count from 1.
"""

from collections.abc import Iterator, Mapping
from math import nan
from typing import Any

import numpy as np

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.estimates import Indices, share
from stapo.analysis.evidence.recorded import NO_SILENCED, Recorded, recorded, thresholds
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=120, title="Silenced tokens by position")
RELATIVE = 10
"""Number of ranges of relative positions."""
AXES: dict[str, dict[str, Any]] = {
    "relative": {"label": "position / length of the response", "low": 0, "high": 1},
    "absolute": {"label": "position in the response, from 1", "log": True},
}


def make(artefacts: Artefacts) -> Any:
    """Return the share of silenced tokens by relative and by absolute position: two panels per size."""
    found, panels = recorded(artefacts), []
    y = charts.y_axis("silenced by S2T [%]", log=True)
    rows = {
        (size, kind): [row for one in found if one.size == size for row in _rows(one, kind)]
        for size in artefacts.study.run.sizes
        for kind in AXES
    }
    group = charts.colours(artefacts.titles(), (row["group"] for of in rows.values() for row in of))
    for (size, kind), of in rows.items():
        layers = charts.lines(of, charts.x_axis(**AXES[kind]), y, group)
        panels.append(charts.panel(layers, f"{size}, {kind} position"))
    missing = "" if any(one.silenced.any() for one in found) else f" {NO_SILENCED}"
    caption = (
        "Share of the tokens at a position that S2T silences, or would silence, with 95 % intervals. "
        "Ranges of positions without a silenced token have no point, because a logarithmic axis has no 0. "
        f"{thresholds(found)}"
    )
    return charts.grid(panels, caption + missing, columns=2, share_y=True)


def _rows(one: Recorded, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a method; none if it silences nothing."""
    if not one.silenced.any():
        return
    middles, index = _ranges(one, kind)
    for i, x in middles.items():
        part = charts.interval(
            share(one.sample, one.silenced & (index == i), index == i, one.silenced), 100
        )
        # A value of 0 has no place on the axis, nor has the lower end of an interval.
        shown = {name: end if part["y"] > 0 and end > 0 else nan for name, end in part.items()}
        yield {"x": x, **shown, "group": one.title}


def _ranges(one: Recorded, kind: str) -> tuple[Mapping[int, float], Indices]:
    """Return range -> its middle, and the (n,) range of each token."""
    places = one.numbers("position")
    if kind == "relative":
        relative = (places + 0.5) / one.numbers("length")
        index = np.minimum((relative * RELATIVE).astype(int), RELATIVE - 1)
        return {i: (i + 0.5) / RELATIVE for i in range(RELATIVE)}, index
    # Ranges have the positions with as many bits: 2^(i-1) to 2^i - 1.
    index = np.array([place.bit_length() for place in places.astype(int).tolist()], dtype=int)
    return {i: ((2**i // 2 + 1) * 2**i) ** 0.5 for i in range(int(index.max()) + 1)}, index
