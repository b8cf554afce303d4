"""Charts as files: SVG, PDF and PNG by vl-convert, the same bytes on every machine.

Three things make them so. Only the fonts inside vl-convert are used, never those of the machine. Texts have
one font in one weight, because the order of several in a PDF is random. And so is the order of the resources
of a PDF, which is why they are sorted.
"""

import json
import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.files import replace_file
from stapo.study import Study
from stapo.text import escape

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
    "axis": {**_TEXT, "gridColor": "#e4e8ec", "labelLimit": 220, "titleLimit": 320},
    "header": _TEXT,
    "legend": {**_TEXT, "orient": "bottom", "columns": 4, "labelLimit": 300, "symbolOpacity": 1},
    "title": {"fontSize": 12, "fontWeight": "normal", "anchor": "start", "limit": 400},
    "view": {"stroke": None},
}


def chart_of(artefacts: Artefacts, name: str) -> Any:
    """Return the chart of a figure of `stapo/analysis/figures`."""
    return import_module(f"stapo.analysis.figures.{name}").make(artefacts)


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart in Vega-Lite's language; a chart is of Altair, or already such a specification."""
    found: dict[str, Any] = chart if isinstance(chart, dict) else chart.to_dict()
    return {**found, "config": CONFIG | found.get("config", {})}


def image(chart: Any) -> dict[str, bytes]:
    """Return a chart as files: suffix to content."""
    text = json.dumps(specification(chart), ensure_ascii=False)
    escaped = UNCOVERED.sub(lambda found: json.dumps(escape(found[0]))[1:-1], text)
    convert = _converter()
    svg = COORDINATES.sub(
        lambda found: LONG.sub(lambda number: f"{float(number[0]):.2f}", found[0]),
        convert.vegalite_to_svg(escaped, allowed_base_urls=[]),
    )
    pdf = RESOURCES.sub(
        lambda found: b"".join(sorted(re.findall(rb"\n[^\n]+", found[0]))), convert.svg_to_pdf(svg)
    )
    return {"svg": svg.encode(), "pdf": pdf, "png": convert.svg_to_png(svg, scale=PIXELS)}


@cache
def _converter() -> Any:
    """Return vl-convert, which reads its fonts once: not those of the machine."""
    import vl_convert

    variable = "FONTCONFIG_FILE"
    before = os.environ.get(variable)
    os.environ[variable] = str(FONTS)
    try:
        vl_convert.svg_to_png('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before
    return vl_convert


def write_figure(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write one figure of a study in all formats."""
    written = []
    for suffix, content in image(chart_of(Artefacts(study, root), name)).items():
        path = root / paths.FIGURE.format(study=study.name, figure=name, suffix=suffix)
        with replace_file(path, "wb") as stream:
            stream.write(content)
        written.append(path)
    return written
