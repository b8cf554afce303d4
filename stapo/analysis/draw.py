"""Charts drawn by matplotlib, as SVG, PDF and PNG; equal charts give equal bytes on one machine."""

import io
from math import ceil
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Panel, Series, groups_of, stride
from stapo.analysis.exhibits import CHARTS
from stapo.files import replace_file
from stapo.study import Study
from stapo.text import visible

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
LINES = ("-", ":", "-.")
"""Of the groups with the colours for the first time, the second and the third."""
WIDTH, HEIGHT = 5.0, 3.4
"""Of a panel, in inches."""

STYLE: Any = {
    "svg.hashsalt": "stapo",
    "svg.fonttype": "path",
    "pdf.compression": 0,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    # Text is never markup.
    "text.parse_math": False,
}
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def colours_of(chart: Chart) -> dict[str, str]:
    """Return the colour of each group of a chart."""
    return {group: COLOURS[i % len(COLOURS)] for i, group in enumerate(groups_of(chart))}


def draw(chart: Chart) -> Figure:
    """Return a chart as a figure of matplotlib."""
    columns = chart.columns or max(len(chart.panels), 1)
    rows = max(ceil(len(chart.panels) / columns), 1)
    colours = colours_of(chart)
    with mpl.rc_context(STYLE):
        size = (1.5 + WIDTH * columns, 0.4 + HEIGHT * rows)
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        share: Literal["row", "none"] = "row" if chart.share_y else "none"
        places = figure.subplots(rows, columns, sharey=share, squeeze=False).flatten()
        for place, panel in zip(places, chart.panels, strict=False):
            _draw_panel(place, panel, colours)
        for place in places[len(chart.panels) :]:
            place.set_visible(False)
        _legend(figure, len(places[: len(chart.panels)]))
    return figure


def _draw_panel(place: Axes, panel: Panel, colours: dict[str, str]) -> None:
    second: Axes | None = None
    if panel.second is not None:
        second = place.twinx()
        second.spines["right"].set_visible(True)
        second.grid(visible=False)
        _axis(second, "y", panel.second)
    bars = [one for one in panel.series if one.kind == "bars"]
    for one in panel.series:
        on = second if one.second and second is not None else place
        if one.kind == "bars":
            _draw_bars(on, one, bars.index(one), len(bars), colours)
        else:
            _draw_series(on, one, colours)
    for line in panel.lines:
        at: dict[str, Any] = {
            "color": "0.4",
            "linewidth": 0.9,
            "linestyle": ":",
            "label": visible(line.label),
        }
        if line.vertical:
            place.axvline(line.value, **at)
        else:
            place.axhline(line.value, **at)
    _axis(place, "x", panel.x)
    _axis(place, "y", panel.y)
    place.set_title(visible(panel.title))


def _draw_series(place: Axes, one: Series, colours: dict[str, str]) -> None:
    """Draw a line or points, with the interval of each value."""
    colour = colours[one.group or one.name]
    label = None if one.faint else visible(one.name)
    points = one.kind == "points"
    style: dict[str, Any] = {"color": colour, "label": label, "linewidth": 1.6}
    again = [*colours].index(one.group or one.name) // len(COLOURS)
    line = "--" if one.dashed else LINES[again % len(LINES)]
    style["linestyle"] = "none" if points else line
    if points or len(one.x) < 30:
        style |= {"marker": "o", "markersize": 5 if points else 3}
    if points and len(one.x) > 30:
        style |= {"markersize": 2, "alpha": 0.5}
    if one.faint:
        style |= {"alpha": 0.3, "linewidth": 0.8}
    every = stride(one)
    x = one.x[::every]
    place.plot(x, one.y[::every], **style)
    if one.low is not None and one.high is not None:
        if points:
            place.errorbar(x, one.y, _errors(one), fmt="none", ecolor=colour, capsize=3)
        else:
            low, high = one.low[::every], one.high[::every]
            place.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if one.labelled:
        for point, text in zip(zip(one.x, one.y, strict=True), one.text or [], strict=True):
            place.annotate(
                visible(text), point, (4, 4), textcoords="offset points", fontsize="small"
            )


def _draw_bars(place: Axes, one: Series, index: int, number: int, colours: dict[str, str]) -> None:
    """Draw horizontal bars, beside those of the other series of the panel."""
    height = 0.8 / number
    at = np.arange(len(one.x)) + (index - (number - 1) / 2) * height
    errors = _errors(one) if one.low is not None else None
    place.barh(
        at, one.y, height, xerr=errors, color=colours[one.group or one.name],
        label=visible(one.name), error_kw={"elinewidth": 0.9}, alpha=0.85,
    )  # fmt: skip
    place.set_yticks(np.arange(len(one.x)), [visible(str(name)) for name in one.x])
    if not place.yaxis_inverted():
        place.invert_yaxis()


def _errors(one: Series) -> Any:
    """Return the (2, N) distances of a series' values from the ends of their intervals."""
    values, low, high = (np.array(part, float) for part in (one.y, one.low, one.high))
    return np.clip([values - low, high - values], 0, None)


def _axis(place: Axes, which: str, axis: Axis) -> None:
    place.set(**{f"{which}label": visible(axis.label)})
    if axis.log:
        place.set(**{f"{which}scale": "log"})
        ticks = getattr(place, f"{which}axis")
        # The formatters for logarithms write markup.
        ticks.set_major_formatter(lambda value, _: f"{value:g}")
        ticks.set_minor_formatter(
            lambda value, _: _between_decades(value, *ticks.get_view_interval())
        )
    elif axis.whole:
        getattr(place, f"{which}axis").set_major_locator(MaxNLocator(integer=True))
    if axis.low is not None or axis.high is not None:
        place.set(**{f"{which}lim": (axis.low, axis.high)})


def _between_decades(value: float, low: float, high: float) -> str:
    """Return the label of a tick between powers of 10: where an axis has few of those, at 2 and 5."""
    return f"{value:g}" if high < 100 * low and f"{value:e}"[0] in "25" else ""


def _legend(figure: Figure, panels: int) -> None:
    """Draw one legend for all panels, below them, each entry once."""
    entries: dict[str, Any] = {}
    for place in figure.axes:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        # About 12 characters per inch, and half an inch for the line or mark.
        widest = 0.5 + max(map(len, entries)) / 12
        fitting = max(int(figure.get_figwidth() / widest), 1)
        columns = min(len(entries), max(2 * panels, 2), fitting)
        figure.legend(
            entries.values(), entries, loc="outside lower center", ncols=columns, fontsize="small"
        )


def image(chart: Chart) -> dict[str, bytes]:
    """Return a chart as files: suffix to content."""
    figure = draw(chart)
    drawn = {}
    for suffix in paths.FIGURE_SUFFIXES:
        stream = io.BytesIO()
        with mpl.rc_context(STYLE):
            figure.savefig(stream, format=suffix, metadata=METADATA[suffix])
        drawn[suffix] = stream.getvalue()
    return drawn | {"png": _with_palette(drawn["png"])}


def _with_palette(png: bytes) -> bytes:
    """Return a PNG with 256 colours: less than a third of the size, and looks the same."""
    picture, stream = Image.open(io.BytesIO(png)), io.BytesIO()
    few = picture.convert("RGB").quantize(
        method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    few.save(stream, format="png", optimize=True, dpi=picture.info["dpi"])
    return stream.getvalue()


def write_figure(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write one figure of a study in all formats.

    Raises:
        DamagedFileError: files that it is computed from are missing, damaged or incomplete.
        StaleScoreError: scores do not belong to this study in its current state.
    """
    written = []
    for suffix, content in image(CHARTS[name](Artefacts(study, root))).items():
        path = root / paths.FIGURE.format(study=study.name, figure=name, suffix=suffix)
        with replace_file(path, "wb") as stream:
            stream.write(content)
        written.append(path)
    return written
