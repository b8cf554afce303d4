"""Recorded tokens of correct answers by probability and entropy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.recorded import (
    QUADRANTS,
    Recorded,
    notes_of,
    paper_note,
    quadrants,
    recorded,
)
from stapo.suite.exhibits import Exhibit
from stapo.suite.text import token_signs

EXHIBIT = Exhibit(order=90, title="Probability and entropy of tokens")


def make(artefacts: Artefacts) -> Any:
    """Return probability and entropy of recorded tokens by quadrant: a panel per model and method."""
    recordings = recorded(artefacts)
    each = charts.MAX_POINTS // (len(QUADRANTS) * max(len(recordings), 1))
    group = charts.colours(QUADRANTS)
    caption = (
        "Recorded tokens of correct answers (advantage > 0) by probability and entropy, at most "
        f"{each} of each quadrant: the number of points says nothing about density. Table quadrants has "
        "their numbers. tau_h differs between mini-batches: the line is its median. "
        f"{' '.join([paper_note(), *notes_of(recordings)])}"
    )
    panels = [_panel(recording, each, group) for recording in recordings]
    return charts.grid(panels, caption, columns=2)


def _panel(recording: Recorded, each: int, group: Mapping[str, Any]) -> Any:
    probabilities = np.maximum(recording.numbers("probability"), np.finfo(np.float32).tiny)
    entropies, tokens = recording.numbers("entropy"), recording.frame["token"]
    top = float(np.max(entropies, initial=0.0)) or 1.0
    left = min(float(np.min(probabilities, initial=1.0)), recording.tau_p / 100) / 2
    x = charts.x_axis("probability", log=True, low=left, high=2.0)
    y = charts.y_axis("entropy [nats]", low=0, high=1.05 * top)
    rows = []
    for quadrant in quadrants(recording):
        for place in recording.shuffled(quadrant.mask)[:each]:
            at = {"x": probabilities[place], "y": entropies[place], "group": quadrant.name}
            rows.append(at | {"text": token_signs(tokens.iloc[place])})
    threshold = charts.rule(recording.tau_p, "tau_p", vertical=True)
    layers = [*charts.points(rows, x, y, group), *threshold]
    if len(recording.tau_h):
        layers += charts.rule(float(np.median(recording.tau_h)), "median of tau_h")
    return charts.panel(layers, f"{recording.model}, {recording.title}", height=260)
