"""Exact gradient norms of recorded tokens between the bounds of the theorem.

The figure shows |grad_z J|^2 / w^2 - 1 + 2 p, which the bounds hold between the curves e^-H and 1 - C H^2
of the entropy alone, for every token; see `evidence.bounds`. w^2 follows from the recorded upper bound; only
tokens with p < 0.99 are drawn, since the others' norms are nearly 0 and rounding would show.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.bounds import ROUNDING, checked
from stapo.analysis.evidence.estimates import Array
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=100, title="Gradient norms and their bounds")
DRAWN_BELOW = 0.99
# Candidates are few: they lie above the others.
GROUPS = {
    "other": "other tokens",
    "retained": "candidates that S2T retains",
    "silenced": "candidates that S2T silences",
}


def make(artefacts: Artefacts) -> Any:
    """Return exact norms and the curves of their bounds, over the entropy: a panel per size."""
    found = recorded(artefacts)
    result = checked(found)
    group = charts.colours([*reversed(GROUPS.values()), "upper bound", "lower bound"])
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
    artefacts: Artefacts, size: str, found: Sequence[Recorded], group: Mapping[str, Any]
) -> Any:
    each = charts.MAX_POINTS // (len(GROUPS) * max(len(found), 1))
    run = next(run for run in artefacts.study.runs() if run.size == size)
    logits = int(artefacts.tokens(run).attrs["vocab_size"])
    factor = (logits - 1) / (logits * log(logits) ** 2)
    rows = [
        {"x": h, "y": norm, "group": name}
        for kind, name in GROUPS.items()
        for one in found
        if one.size == size
        for h, norm in _shifted_norms(one, kind, factor)[:each]
    ]
    entropies = np.linspace(0, 1.05 * (max((row["x"] for row in rows), default=0.0) or 1.0), 100)
    curves = {"upper bound": 1 - factor * entropies**2, "lower bound": np.exp(-entropies)}
    bounds = [
        {"x": h, "y": value, "group": name}
        for name, curve in curves.items()
        for h, value in zip(entropies, curve, strict=True)
    ]
    x, y = charts.x_axis("entropy H [nats]"), charts.y_axis("squared norm / w^2 - 1 + 2 p")
    return charts.panel(
        [*charts.points(rows, x, y, group), *charts.lines(bounds, x, y, group)], size, height=260
    )


def _shifted_norms(one: Recorded, kind: str, factor: float) -> Array:
    """Return (n, 2) entropies and |grad_z J|^2 / w^2 - 1 + 2 p of the tokens of a kind with a gradient."""
    exact, high = one.numbers("gradient_norm_sq"), one.numbers("upper_bound")
    p, entropies = one.numbers("current_probability"), one.numbers("current_entropy")
    fits = one.is_kind(kind) & (np.nan_to_num(exact) > 0) & (np.nan_to_num(p) < DRAWN_BELOW)
    shown = one.shuffled(fits)
    exact, high, p, entropies = (values[shown] for values in (exact, high, p, entropies))
    shifted = exact * (2 - 2 * p - factor * entropies**2) / high - 1 + 2 * p
    return np.stack([entropies, shifted], axis=1)
