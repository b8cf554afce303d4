"""A chart as data: what is drawn as files by matplotlib, and in the report by Plotly.

Texts are plain text: both renderers escape them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["line", "points", "bars"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a panel."""

    label: str = ""
    """With the unit."""
    log: bool = False
    whole: bool = False
    """Whether ticks are whole numbers, as for steps."""
    low: float | None = None
    high: float | None = None
    """Limits; None for those of the values."""


MAX_POINTS = 400
"""Of a line: of a longer one every k-th point is drawn, about one per pixel. The steps of many seeds would be
megabytes in SVG, PDF and the report."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, set of points or set of bars of a panel."""

    name: str
    """Text of the legend."""
    x: Sequence[float] | Sequence[str]
    """Numbers, or names for bars."""
    y: Sequence[float]
    """Values; nan where there is none."""
    kind: Kind = "line"
    group: str = ""
    """What shares colour and legend entry, most often the title of a method; the name if empty."""
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """Ends of intervals: a band around a line, error bars otherwise."""
    text: Sequence[str] | None = None
    """Text of each point, shown at the point by Plotly."""
    labelled: bool = False
    """Whether `text` is also drawn beside each point."""
    seed: int | None = None
    """Training seed, if it is of one training."""
    faint: bool = False
    """Whether it stands behind the others, without a legend entry, as raw values behind a moving mean."""
    dashed: bool = False
    second: bool = False
    """Whether it belongs to the second vertical axis, on the right."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight line over a whole panel, for orientation."""

    value: float
    label: str = ""
    vertical: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One coordinate system."""

    series: Sequence[Series]
    title: str = ""
    """Most often the size of the model."""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    second: Axis | None = None
    lines: Sequence[Line] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure: panels beside each other."""

    panels: Sequence[Panel]
    groups: Sequence[str] = ()
    """All groups in the order of their colours, such as the titles of the study's methods; others follow."""
    caption: str = ""
    """What the reader sees and how it was computed, in one to three sentences."""
    columns: int | None = None
    """Panels beside each other; None for all."""
    share_y: bool = True
    """Whether panels in a row have the same vertical axis."""


def stride(one: Series) -> int:
    """Return k if every k-th point of a series is drawn."""
    return -(-len(one.x) // MAX_POINTS) if one.kind == "line" and len(one.x) else 1


def groups_of(chart: Chart) -> list[str]:
    """Return the groups of a chart in the order of their colours."""
    found = [one.group or one.name for panel in chart.panels for one in panel.series]
    return [*dict.fromkeys([*chart.groups, *found])]
