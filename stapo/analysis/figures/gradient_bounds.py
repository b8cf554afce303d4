"""Exact gradient norms of recorded tokens between the bounds of the theorem."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stapo.exhibits import Exhibit

if TYPE_CHECKING:
    from stapo.analysis.artefacts import Artefacts
    from stapo.analysis.evidence.recorded import Recorded

EXHIBIT = Exhibit(order=100, title="Gradient norms and their bounds", sources=frozenset({"tokens"}))


def make(artefacts: "Artefacts") -> Any:
    """Return exact norms and the curves of their bounds, over the entropy: a panel per size."""
    from stapo.analysis import charts
    from stapo.analysis.evidence.bounds import DRAWN_BELOW, GROUPS, ROUNDING, checked
    from stapo.analysis.evidence.recorded import recorded

    found = recorded(artefacts)
    result = checked(found)
    group = charts.colours([*GROUPS.values(), "upper bound", "lower bound"])
    panels = [_panel(artefacts, size, found, group) for size in artefacts.study.run.sizes]
    caption = (
        "Exact squared gradient norms at the logits, divided by w^2 (w: ratio * A) and shifted by 2 p - 1, "
        "so that the theorem's bounds are the curves e^-H and 1 - C H^2, for recorded tokens of all methods "
        f"with p < {DRAWN_BELOW}, at most {charts.MAX_POINTS:,} of them. Of all {result.tokens:,} recorded "
        f"tokens with a gradient, {result.inside:,} lie between their bounds (up to {ROUNDING:g} w^2, for "
        f"rounding; largest excess {result.excess:.1g} w^2)."
    )
    return charts.grid(panels, caption)


def _panel(
    artefacts: "Artefacts", size: str, found: Sequence["Recorded"], group: dict[str, Any]
) -> Any:
    import numpy as np

    from stapo.analysis import charts
    from stapo.analysis.evidence.bounds import GROUPS, KINDS, curves, factor_of, shifted_norms

    mine = [one for one in found if one.size == size]
    each = charts.MAX_POINTS // (len(KINDS) * max(len(found), 1))
    factor = factor_of(artefacts, size)
    rows: list[dict[str, Any]] = []
    # Candidates are few: they lie above the others.
    for kind in reversed(KINDS):
        for one in mine:
            for h, norm in zip(*shifted_norms(one, kind, factor, each), strict=True):
                rows.append({"x": float(h), "y": float(norm), "group": GROUPS[kind]})
    entropies = np.linspace(0, 1.05 * (max((row["x"] for row in rows), default=0.0) or 1.0), 100)
    bounds = [
        {"x": float(h), "y": float(value), "group": name}
        for name, curve in curves(entropies, factor).items()
        for h, value in zip(entropies, curve, strict=True)
    ]
    x, y = charts.x_axis("entropy H [nats]"), charts.y_axis("squared norm / w^2 - 1 + 2 p")
    return charts.panel(
        [*charts.points(rows, x, y, group), *charts.lines(bounds, x, y, group)], size, height=260
    )
