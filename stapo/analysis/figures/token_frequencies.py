"""The most frequent silenced and retained candidates, in place of the paper's clouds of words.

The share of a token is estimated in all candidates of its kind of one method and size: the sum of the
weights of its records / the sum of the weights of the kind. Tokens are compared as text, with their white
space. Those with the same estimate are ordered as text.
"""

from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.estimates import share
from stapo.analysis.evidence.recorded import NO_SILENCED, Recorded, recorded, thresholds
from stapo.exhibits import Exhibit
from stapo.text import token_quoted

EXHIBIT = Exhibit(order=110, title="Silenced and retained tokens")
SHOWN = 10
"""Tokens of each kind, per method and size; our choice."""
CHARACTERS = 24
"""Of a token."""
KINDS = ("silenced", "retained")


def make(artefacts: Artefacts) -> Any:
    """Return the shares of the most frequent tokens as bars: a panel per size, method and kind."""
    found, group, panels = recorded(artefacts), charts.colours(KINDS), []
    for one in found:
        for kind in KINDS:
            rows = _rows(one, kind)
            layers = charts.bars(rows, f"share of the {kind} candidates [%]", group)
            title = f"{one.size}, {one.title}: {kind}" + ("" if rows else " (no token)")
            panels.append(charts.panel(layers, title))
    missing = "" if any(one.silenced.any() for one in found) else f" {NO_SILENCED}"
    caption = (
        f"The {SHOWN} most frequent tokens among the candidates that S2T silences, or would silence, and "
        f"among those that it retains, with 95 % intervals. "
        f"{thresholds(found)}"
    )
    return charts.grid(panels, caption + missing, columns=2)


def _rows(one: Recorded, kind: str) -> list[dict[str, Any]]:
    """Return the rows of the bars, the most frequent token first, shortened and all different."""
    of_kind = one.is_kind(kind)
    tokens = one.frame["token"].to_numpy(dtype=object)
    weights: dict[str, float] = {}
    for token, weight in zip(tokens[of_kind], one.sample.weight[of_kind], strict=True):
        weights[token] = weights.get(token, 0.0) + weight
    rows: list[dict[str, Any]] = []
    ordered = sorted(weights, key=lambda token: (-round(weights[token], 6), token))
    for rank, token in enumerate(ordered[:SHOWN], start=1):
        name = token_quoted(token, CHARACTERS)
        name += f" #{rank}" if name in {row["y"] for row in rows} else ""
        found = share(one.sample, of_kind & (tokens == token), of_kind)
        rows.append({**charts.interval(found, 100, axis="x"), "y": name, "group": kind})
    return rows
