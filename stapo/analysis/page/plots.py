"""Charts as Plotly figures: each panel is a figure of its own, which the page arranges and colours.

Colours are indices into a palette, since the page has one for light and one for dark. Plotly interprets some
tags, entities and `%{...}` in text; `literal` escapes them.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import isfinite, log10
from typing import Any

from stapo.analysis.charts import MAX_POINTS, Axis, Chart, Line, Panel, Series, groups_of, stride
from stapo.text import visible

PALETTES = {
    "light": [
        "#0072B2", "#B97700", "#009E73", "#D55E00", "#B8578F", "#2A87B8", "#000000", "#8A8200",
    ],
    "dark": [
        "#56A8E0", "#E69F00", "#2CC79A", "#FF8A4A", "#E29AC4", "#9AD2F5", "#FFFFFF", "#F0E442",
    ],
}  # fmt: skip
"""Colours after Okabe and Ito, which colour-blind readers can distinguish, with contrast to the page."""
DASHES = ("solid", "dot", "dashdot")
"""Of the groups with the colours for the first time, the second and the third."""
DIGITS = 6
"""Significant digits of numbers, so that equal results give equal pages on other machines too."""
MARKED_POINTS = 30
"""Lines with fewer points show each of them."""
MARGIN = 0.05
"""Space between values and the ends of a shared axis, as a share of their range."""


def literal(text: str) -> str:
    """Return text as Plotly shows it literally."""
    return escape(visible(str(text)), quote=False).replace("%{", "%&#123;")


def rounded(value: Any) -> Any:
    """Return a number with `DIGITS` significant digits; None if it is not finite, text as it is."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, int):
        return value
    number = float(value)
    if not isfinite(number):
        return None
    short = float(f"{number:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def plot(chart: Chart, sizes: Sequence[str]) -> dict[str, Any]:
    """Return what the page needs to draw a chart.

    Args:
        chart: the chart.
        sizes: sizes of models of the study; a panel whose title begins with one is of that size.
    """
    groups = groups_of(chart)
    shown = {one.group or one.name for panel in chart.panels for one in panel.series}
    columns = chart.columns or max(len(chart.panels), 1)
    panels = []
    for start in range(0, len(chart.panels), columns):
        row = chart.panels[start : start + columns]
        shared = _shared_range(row) if chart.share_y and len(row) > 1 else None
        panels += [
            {
                "title": visible(panel.title),
                "size": _size_of(panel.title, sizes),
                "data": [*_traces(panel, groups)],
                "layout": _layout(panel, shared),
            }
            for panel in row
        ]
    return {
        "columns": columns,
        "groups": [[i, visible(group)] for i, group in enumerate(groups) if group in shown],
        "seeds": sorted({s.seed for p in chart.panels for s in p.series if s.seed is not None}),
        "panels": panels,
    }


def thinned(chart: Chart) -> str:
    """Return a note on the lines of which not all points are shown; empty if there is none."""
    if max((stride(one) for panel in chart.panels for one in panel.series), default=1) == 1:
        return ""
    return f"Of lines of more than {MAX_POINTS:,} points, every k-th is drawn."


def _size_of(title: str, sizes: Sequence[str]) -> str:
    found = [size for size in sizes if title == size or title.startswith((f"{size},", f"{size} "))]
    return max(found, key=len, default="")


def _traces(panel: Panel, groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    for one in panel.series:
        every = stride(one)
        place = groups.index(one.group or one.name)
        again = place // len(PALETTES["light"])
        meta = {"colour": place, "seed": one.seed}
        common = {
            "name": literal(one.name),
            "meta": meta,
            **({"yaxis": "y2"} if one.second else {}),
        }
        if one.kind == "bars":
            yield common | _bars(one)
            continue
        if one.kind == "line" and one.low is not None and one.high is not None:
            yield common | _band(one, every)
        yield common | _curve(one, every, "dash" if one.dashed else DASHES[again % len(DASHES)])


def _bars(one: Series) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "x": [*map(rounded, one.y)],
        "y": [*map(rounded, one.x)],
        "hovertemplate": "%{x:.4~g}",
        **_texts(one, 1),
        **_errors(one, "error_x"),
    }


def _band(one: Series, every: int) -> dict[str, Any]:
    assert one.low is not None
    assert one.high is not None
    ends = [
        (x, low, high)
        for x, low, high in list(zip(one.x, one.low, one.high, strict=True))[::every]
        if isfinite(low) and isfinite(high)
    ]
    return {
        "type": "scatter",
        "mode": "none",
        "fill": "toself",
        "hoverinfo": "skip",
        "x": [rounded(x) for x, _, _ in [*ends, *reversed(ends)]],
        "y": [rounded(high) for *_, high in ends] + [rounded(low) for _, low, _ in reversed(ends)],
    }


def _curve(one: Series, every: int, dash: str) -> dict[str, Any]:
    points = one.kind == "points"
    marked = points or len(one.x) < MARKED_POINTS
    mode = "markers" if points else "lines+markers" if marked else "lines"
    found: dict[str, Any] = {
        "type": "scatter",
        "mode": mode + "+text" * one.labelled,
        "x": [*map(rounded, one.x)][::every],
        "y": [*map(rounded, one.y)][::every],
        "line": {"width": 1 if one.faint else 2, "dash": dash},
        "marker": {"size": (4 if len(one.x) > MARKED_POINTS else 8) if points else 5},
        "hovertemplate": "(%{x:.4~g}, %{y:.4~g})" if points else "%{y:.4~g}",
        **_texts(one, every),
    }
    if one.faint:
        found |= {"hoverinfo": "skip", "hovertemplate": None}
    if points:
        # Not of the whole trace, whose texts would be pale too.
        found["marker"]["opacity"] = 0.5 if one.faint or len(one.x) > MARKED_POINTS else 1
    elif one.faint:
        found["opacity"] = 0.3
    if one.labelled:
        found |= {"textposition": "top right", "cliponaxis": False}
    if points:
        found |= _errors(one, "error_y")
    return found


def _texts(one: Series, every: int) -> dict[str, Any]:
    if one.text is None:
        return {}
    # `text` of a bar would be drawn on it; `hovertext` is only shown when asked for.
    key = "text" if one.labelled else "hovertext"
    values = "(%{x:.4~g}, %{y:.4~g})" if one.kind == "points" else "%{x:.4~g}, %{y:.4~g}"
    return {key: [*map(literal, one.text)][::every], "hovertemplate": f"%{{{key}}}<br>{values}"}


def _errors(one: Series, key: str) -> dict[str, Any]:
    if one.low is None or one.high is None:
        return {}
    above = [rounded(max(high - y, 0)) for y, high in zip(one.y, one.high, strict=True)]
    below = [rounded(max(y - low, 0)) for y, low in zip(one.y, one.low, strict=True)]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {key: {**error, "thickness": 1.2, "width": 3}}


def _layout(panel: Panel, shared: list[float] | None) -> dict[str, Any]:
    bars = any(one.kind == "bars" for one in panel.series)
    lines = not bars and all(one.kind == "line" for one in panel.series)
    y = _axis(panel.y)
    if shared is not None and not {"range", "autorangeoptions"} & {*y}:
        y["range"] = shared
    if bars:
        y |= {"type": "category", "autorange": "reversed"}
    layout: dict[str, Any] = {
        "xaxis": _axis(panel.x),
        "yaxis": y,
        "hovermode": "x unified" if lines else "closest",
        **_orientation(panel),
    }
    if bars:
        layout["barmode"] = "group"
    if panel.second is not None:
        # Ticks of its own: those in line with the left axis would be crooked numbers.
        second = {"overlaying": "y", "side": "right", "showgrid": False, "tickmode": "auto"}
        layout["yaxis2"] = {**_axis(panel.second), **second}
    return layout


def _axis(axis: Axis) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": literal(axis.label)}}
    if axis.log:
        found |= {"type": "log", "exponentformat": "power", "tickfont": {"size": 11}}
    elif axis.whole:
        # The page keeps the distance of ticks whole, which Plotly has no setting for.
        found |= {"tickformat": ",d", "hoverformat": ",d", "tick0": 0}
    if axis.low is not None and axis.high is not None:
        found |= {"range": [_end(axis.low, axis.log), _end(axis.high, axis.log)]}
    else:
        # Plotly forgets a range with one end when ticks change.
        ends = {"minallowed": axis.low, "maxallowed": axis.high}
        for limit, end in ends.items():
            if end is not None:
                found |= {"autorangeoptions": {limit: rounded(end), "include": rounded(end)}}
    return found


def _end(value: float, log: bool) -> Any:
    return rounded(log10(value) if log else value)


def _shared_range(row: Sequence[Panel]) -> list[float] | None:
    """Return the range of the vertical axes of a row of panels; None if bars or limits set it."""
    log = all(panel.y.log for panel in row)
    values = [
        float(value)
        for panel in row
        for one in panel.series
        for part in (one.y, one.low or (), one.high or ())
        for value in part
        if one.kind != "bars" and not one.second and isfinite(value) and (value > 0 or not log)
    ]
    if not values or any(one.kind == "bars" for panel in row for one in panel.series):
        return None
    values += [line.value for panel in row for line in panel.lines if not line.vertical]
    ends = [_end(end, log) for end in (min(values), max(values))]
    margin = MARGIN * (ends[1] - ends[0]) or 1.0
    return [rounded(ends[0] - margin), rounded(ends[1] + margin)]


def _orientation(panel: Panel) -> dict[str, Any]:
    """Return lines for orientation and their labels."""
    return {
        "shapes": [_shape(line) for line in panel.lines],
        "annotations": [_label(line, panel) for line in panel.lines if line.label],
    }


def _shape(line: Line) -> dict[str, Any]:
    value, style = rounded(line.value), {"type": "line", "line": {"width": 1.2, "dash": "dot"}}
    if line.vertical:
        return {**style, "x0": value, "x1": value, "yref": "paper", "y0": 0, "y1": 1}
    return {**style, "y0": value, "y1": value, "xref": "paper", "x0": 0, "x1": 1}


def _label(line: Line, panel: Panel) -> dict[str, Any]:
    # Positions of annotations are logarithms on logarithmic axes; those of shapes are values.
    label = {"text": literal(line.label), "showarrow": False, "font": {"size": 11}}
    if line.vertical:
        at = {"x": _end(line.value, panel.x.log), "xanchor": "left", "yref": "paper", "y": 1}
        return {**label, **at, "yanchor": "bottom"}
    at = {"y": _end(line.value, panel.y.log), "yanchor": "bottom", "xref": "paper", "x": 1}
    return {**label, **at, "xanchor": "right"}
