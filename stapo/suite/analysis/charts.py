"""Parts of our figures, as Altair charts (Vega-Lite), and their writing as SVG, PDF and PNG by vl-convert.

A figure is one Altair chart, of which `image` makes files and the report its page. Its `description` is
the caption: what the reader sees and how it was computed. Ours are panels of lines, points or bars; all of
them take rows with the fields

    x, y        place; for bars, x is the value and y the name
    group       what shares a colour and an entry of the legend, most often the title of a method
    low, high   ends of an interval: a band around a line, bars otherwise
    seed        training seed, of what is of one training
    pale        1 for what stands behind the others, such as raw values behind a moving mean
    text        what is shown at a point that the pointer touches

Except for the first three, all may be missing.

Files are the same bytes on every machine: only the fonts inside vl-convert are used, never those of the
machine; texts have one font in one weight, because the order of several in a PDF is random; and so is the
order of the resources of a PDF, which is why they are sorted.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from stapo.core.files import write
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.text import escape, visible

alt.data_transformers.enable("default", max_rows=None)
Row = Mapping[str, Any]
Layer = Any
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B3A400")
"""After Okabe and Ito, which colour-blind readers can distinguish."""
DASHES, SHAPES = ([1, 0], [2, 2], [8, 3, 2, 3]), ("circle", "square", "triangle-up")
"""Of lines and of points, for the groups with the colours for the first time, the second and the third."""
WIDTH, HEIGHT = 320, 220
"""Of a panel, in pixels."""
MARKED = 30
"""Lines with fewer points show each of them."""
MAX_POINTS = 4000
"""Recorded tokens of a chart of points, at most."""
DIGITS = 6
"""Significant digits of numbers, so that equal results give equal files on other machines too."""
GREY = "#57606a"
FONT = "Liberation Sans"
COVERED = "\x20-\x7e\xa0-\u017f\u0386-\u03ce\u0400-\u045f\u2010-\u2022\u2026\u2030\u2039\u203a\u2190-\u2195"
UNCOVERED = re.compile(f"[^{COVERED}\u2212\u221a\u221e\u2248\u2260\u2264\u2265]")
"""What the font has no sign for; in files it is escaped."""
RESOURCES = re.compile(rb"(?:\n *\/\w+ \d+ 0 R)+")
"""Of a PDF: the names in one dictionary of resources."""
COORDINATES = re.compile(r'(?<= d=")[^"]*|translate\([^()]*\)')
LONG = re.compile(r"\d+\.\d{3,}(?:e-?\d+)?")
"""A number with more digits than an eye, or another processor, tells apart."""
FONTS = Path(__file__).parent / "templates" / "fonts.conf"
PIXELS = 2.0
"""Of a PNG, per pixel of the chart."""
_TEXT = {"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": "white",
    # Of thousands of points, each would be described in the SVG.
    "aria": False,
    "mark": {"tooltip": {"content": "data"}},
    "axis": {
        **_TEXT,
        "gridColor": "#e4e8ec",
        "labelLimit": 220,
        "titleLimit": 320,
        "labelSeparation": 8,
    },
    "header": _TEXT,
    "legend": {**_TEXT, "orient": "bottom", "columns": 4, "labelLimit": 300, "symbolOpacity": 1},
    "title": {"fontSize": 12, "fontWeight": "normal", "anchor": "start", "limit": 400},
    "view": {"stroke": None},
}


def cell(value: Any) -> str | float | int | None:
    """Return a value as it stands in the data of a chart; None for what is no number."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return visible(value)
    if not isfinite(value):
        return None
    short = float(f"{float(value):.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def interval(estimate: Interval, unit: float = 1.0, axis: str = "y") -> dict[str, float]:
    """Return the fields of a row for a value with its interval, in another unit."""
    return {axis: unit * estimate.value, "low": unit * estimate.low, "high": unit * estimate.high}


def data(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as the data of a chart."""
    return pd.DataFrame([{name: cell(value) for name, value in row.items()} for row in rows])


def x_axis(label: str, **options: Any) -> alt.X:
    """Return a horizontal axis; options as of `y_axis`."""
    return alt.X("x:Q", title=visible(label), **_scaled(**options))


def y_axis(label: str, **options: Any) -> alt.Y:
    """Return a vertical axis; options are `log`, `low` and `high` (limits), and `whole` numbers as ticks."""
    return alt.Y("y:Q", title=visible(label), **_scaled(**options))


def _scaled(
    log: bool = False, low: float | None = None, high: float | None = None, whole: bool = False
) -> dict[str, Any]:
    ends = {"domainMin": cell(low), "domainMax": cell(high)}
    limits: dict[str, Any] = {name: end for name, end in ends.items() if end is not None}
    if log:
        scale = alt.Scale(type="log", nice=False, padding=alt.Undefined if limits else 8, **limits)
        return {"scale": scale, "axis": alt.Axis(format="~g", tickCount=3)}
    scale = alt.Scale(zero=False, nice="domainMax" not in limits, **limits)
    return {"scale": scale, "axis": alt.Axis(tickMinStep=1, format=",d") if whole else alt.Axis()}


def colours(groups: Iterable[str]) -> dict[str, Any]:
    """Return the encodings of the groups of a figure: colours, and if there are many, dashes and shapes."""
    names = [*dict.fromkeys(map(visible, groups))]
    places = range(len(names))

    def by_group(channel: Any, values: Sequence[Any]) -> Any:
        return channel("group:N", title=None, scale=alt.Scale(domain=names, range=values))

    encodings = {"color": by_group(alt.Color, [COLOURS[i % len(COLOURS)] for i in places])}
    if len(names) > len(COLOURS):
        seen = [i // len(COLOURS) % len(DASHES) for i in places]
        encodings["strokeDash"] = by_group(alt.StrokeDash, [DASHES[i] for i in seen])
        encodings["shape"] = by_group(alt.Shape, [SHAPES[i] for i in seen])
    return encodings


def lines(rows: Sequence[Row], x: alt.X, y: alt.Y, group: Mapping[str, Any]) -> list[Layer]:
    """Return the layers of lines, each of one group and seed, with bands where rows have intervals."""
    layers = []
    for pale in (True, False):
        part = [row for row in rows if bool(row.get("pale")) == pale]
        if not part:
            continue
        encodings = {name: encoding for name, encoding in group.items() if name != "shape"}
        chart = alt.Chart(data(part)).encode(x=x, y=y, **encodings)
        if any("seed" in row for row in part):
            chart = chart.encode(detail="seed:N")
        if _has_intervals(part):
            band = chart.mark_area(fillOpacity=0.15, strokeOpacity=0)
            layers.append(band.encode(_ends(y), y2="high:Q"))
        style: dict[str, Any] = {"strokeWidth": 0.8, "strokeOpacity": 0.35}
        if not pale:
            style = {"strokeWidth": 1.6}
            if max(Counter(row["group"] for row in part).values()) < MARKED:
                style["point"] = {"filled": True, "size": 16}
        layers.append(chart.mark_line(**style))
    return layers


def points(
    rows: Sequence[Row], x: alt.X, y: alt.Y, group: Mapping[str, Any], size: float = 6
) -> list[Layer]:
    """Return the layers of points, with bars where rows have intervals."""
    if not rows:
        return []
    chart = alt.Chart(data(rows)).encode(x=x, y=y, color=group["color"])
    bars = [chart.mark_rule().encode(_ends(y), y2="high:Q")] if _has_intervals(rows) else []
    shape = {"shape": group["shape"]} if "shape" in group else {}
    return [*bars, chart.mark_point(filled=True, size=size, opacity=1).encode(**shape)]


def bars(rows: Sequence[Row], label: str, group: Mapping[str, Any]) -> list[Layer]:
    """Return the layers of horizontal bars with their intervals, in the order of the rows."""
    if not rows:
        return []
    x = alt.X("x:Q", title=visible(label))
    names = [*dict.fromkeys(visible(row["y"]) for row in rows)]
    y = alt.Y("y:N", title=None, sort=names, axis=alt.Axis(labelLimit=220))
    chart = alt.Chart(data(rows)).encode(x=x, y=y)
    if len(rows) > len(names):  # A bar of each group.
        order = group["color"]["scale"]["domain"]
        chart = chart.encode(yOffset=alt.YOffset("group:N", sort=order))
    drawn = [chart.mark_bar(fillOpacity=0.85).encode(color=group["color"])]
    if _has_intervals(rows):
        ends = alt.X("low:Q", title=x["title"])
        drawn.append(chart.mark_rule(color="#333").encode(ends, x2="high:Q"))
    return drawn


def _has_intervals(rows: Iterable[Row]) -> bool:
    return any(row.get("low") is not None for row in rows)


def _ends(y: alt.Y) -> alt.Y:
    return alt.Y("low:Q", title=y["title"], scale=y["scale"])


def rule(value: float, label: str = "", vertical: bool = False) -> list[Layer]:
    """Return a dotted straight line over a whole panel, for orientation, and its label."""
    chart = alt.Chart(data([{"value": value, "label": label}]))
    at = {"x": alt.X("value:Q")} if vertical else {"y": alt.Y("value:Q")}
    layers = [chart.mark_rule(strokeDash=[2, 3], color=GREY, size=1).encode(**at)]
    if label:
        place = {"y": alt.value(-6)} if vertical else {"x": alt.value("width")}
        style = {"align": "left"} if vertical else {"align": "right", "dy": -6}
        text = chart.encode(text="label:N", **at, **place)
        # A white edge, where it lies over lines and points.
        layers.append(text.mark_text(stroke="white", strokeWidth=3, fontSize=10, **style))
        layers.append(text.mark_text(color=GREY, fontSize=10, **style))
    return layers


def panel(layers: Sequence[Layer], title: str = "", height: int = HEIGHT) -> Any:
    """Return one coordinate system."""
    empty = alt.Chart(data([{"text": "no values"}])).mark_text(color=GREY).encode(text="text:N")
    shown = alt.layer(*(layers or [empty])).properties(width=WIDTH, height=height)
    return shown.properties(title=visible(title)) if title else shown


def grid(
    panels: Sequence[Layer], caption: str, columns: int | None = None, share_y: bool = False
) -> Any:
    """Return a figure: panels row by row, up to three beside each other or more in pairs, and its caption."""
    shown = [*panels] or [panel([])]
    figure = alt.concat(*shown, columns=columns or (2 if len(shown) > 3 else 3), spacing=24)
    return figure.resolve_scale(y="shared" if share_y else "independent").properties(
        description=visible(caption)
    )


def chart_of(artefacts: Artefacts, name: str) -> Any:
    """Return the chart of a figure of `stapo/suite/analysis/figures`."""
    return import_module(f"stapo.suite.analysis.figures.{name}").make(artefacts)


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart in Vega-Lite's language; a chart is of Altair, or already such a specification."""
    spec: dict[str, Any] = chart if isinstance(chart, dict) else chart.to_dict()
    return {**spec, "config": CONFIG | spec.get("config", {})}


def image(chart: Any) -> dict[str, bytes]:
    """Return a chart as files: suffix to content."""
    text = json.dumps(specification(chart), ensure_ascii=False)
    escaped = UNCOVERED.sub(lambda match: json.dumps(escape(match[0]))[1:-1], text)
    convert = _converter()
    svg = COORDINATES.sub(
        lambda match: LONG.sub(lambda number: f"{float(number[0]):.2f}", match[0]),
        convert.vegalite_to_svg(escaped, allowed_base_urls=[]),
    )
    pdf = RESOURCES.sub(
        lambda match: b"".join(sorted(re.findall(rb"\n[^\n]+", match[0]))), convert.svg_to_pdf(svg)
    )
    return {"svg": svg.encode(), "pdf": pdf, "png": convert.svg_to_png(svg, scale=PIXELS)}


@cache
def _converter() -> Any:
    """Return vl-convert, which reads its fonts once: not those of the machine."""
    import vl_convert

    before = os.environ.copy()
    os.environ["FONTCONFIG_FILE"] = str(FONTS)
    try:
        vl_convert.svg_to_png('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
    finally:
        os.environ.clear()
        os.environ.update(before)
    return vl_convert


def write_figure(artefacts: Artefacts, name: str) -> list[Path]:
    """Write one figure of a study in all formats."""
    at = {"study": artefacts.study.name, "figure": name}
    return [
        write(artefacts.root / paths.FIGURE.format(**at, suffix=suffix), content)
        for suffix, content in image(chart_of(artefacts, name)).items()
    ]
