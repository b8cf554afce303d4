"""The most frequent silenced and retained tokens."""

from collections.abc import Sequence
from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.frequencies import KINDS, SHOWN, Frequency, frequencies, paper_text
from stapo.analysis.evidence.recorded import NO_SILENCED, recorded, thresholds
from stapo.exhibits import Exhibit
from stapo.text import shorten, visible

EXHIBIT = Exhibit(order=110, title="Silenced and retained tokens")


def make(artefacts: Artefacts) -> Any:
    """Return the shares of the most frequent tokens as bars: a panel per size, method and kind."""
    found, group, panels = recorded(artefacts), charts.colours(KINDS), []
    for one in found:
        for kind in KINDS:
            rows = _rows(frequencies(one, kind), kind)
            layers = charts.bars(rows, f"share of the {kind} candidates [%]", group)
            title = f"{one.size}, {one.title}: {kind}" + ("" if rows else " (no token)")
            panels.append(charts.panel(layers, title))
    missing = "" if any(one.silenced.any() for one in found) else f" {NO_SILENCED}"
    caption = (
        f"The {SHOWN} most frequent tokens among the candidates that S2T silences, or would silence, and "
        f"among those that it retains, with 95 % intervals. {paper_text()} Words of a cloud are marked. "
        f"{thresholds(found)}"
    )
    return charts.grid(panels, caption + missing, columns=2)


def _rows(found: Sequence[Frequency], kind: str) -> list[dict[str, Any]]:
    """Return the rows of the bars: tokens in quotation marks, shortened and all different."""
    rows: list[dict[str, Any]] = []
    for one in found:
        token = one.token.translate({0x2423: " ", 0x21B5: "\\n", 0x21E5: "\\t"})
        name = f'"{shorten(visible(token), 16)}"'
        name += "" if one.cloud == "not known" else f" (paper: {one.cloud})"
        name += f" #{one.rank}" if name in {row["y"] for row in rows} else ""
        rows.append({**charts.interval(one.share, 100, axis="x"), "y": name, "group": kind})
    return rows
