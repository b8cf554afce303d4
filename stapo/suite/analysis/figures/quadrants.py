"""Recorded tokens of correct answers by probability and entropy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.quadrants import NAMES, paper_note, quadrants
from stapo.suite.analysis.evidence.recorded import Recorded, notes_of, recorded
from stapo.suite.exhibits import Exhibit
from stapo.suite.text import token_signs

EXHIBIT = Exhibit(order=90, title="Probability and entropy of tokens")


def make(artefacts: Artefacts) -> Any:
    """Return probability and entropy of recorded tokens by quadrant: a panel per size and method."""
    found = recorded(artefacts)
    each = charts.MAX_POINTS // (len(NAMES) * max(len(found), 1))
    group = charts.colours(NAMES)
    caption = (
        "Recorded tokens of correct answers (advantage > 0) by probability and entropy, at most "
        f"{each} of each quadrant: the number of points says nothing about density. Table quadrants has "
        "their numbers. tau_h differs between mini-batches: the line is its median. "
        f"{' '.join([paper_note(), *notes_of(found)])}"
    )
    return charts.grid([_panel(one, each, group) for one in found], caption, columns=2)


def _panel(one: Recorded, each: int, group: Mapping[str, Any]) -> Any:
    probabilities = np.maximum(one.numbers("probability"), np.finfo(np.float32).tiny)
    entropies, tokens = one.numbers("entropy"), one.frame["token"]
    top = float(np.max(entropies, initial=0.0)) or 1.0
    left = min(float(np.min(probabilities, initial=1.0)), one.tau_p / 100) / 2
    x = charts.x_axis("probability", log=True, low=left, high=2.0)
    y = charts.y_axis("entropy [nats]", low=0, high=1.05 * top)
    rows = []
    for quadrant in quadrants(one):
        for place in one.shuffled(quadrant.mask)[:each]:
            at = {"x": probabilities[place], "y": entropies[place], "group": quadrant.name}
            rows.append(at | {"text": token_signs(tokens.iloc[place])})
    layers = [*charts.points(rows, x, y, group), *charts.rule(one.tau_p, "tau_p", vertical=True)]
    if len(one.tau_h):
        layers += charts.rule(float(np.median(one.tau_h)), "median of tau_h")
    return charts.panel(layers, f"{one.size}, {one.title}", height=260)
