"""Entropy change of tokens that the lemma predicts, against what was measured."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import changes, lemma_correlation, ranks_of, title_of
from stapo.analysis.table import with_interval
from stapo.evaluation.statistics import mean_of_seeds
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(
    order=130, title="Entropy change of tokens: predicted and measured", needs="interventions"
)

BINS = 10
"""Parts of the predicted percentiles, of which means are drawn."""


def make(artefacts: Artefacts) -> Any:
    """Return predicted against measured entropy change of tokens, both as ranks within their repetition."""
    study, panels = artefacts.study, []
    each = charts.MAX_POINTS // max(len(study.intervened()), 1)
    group = charts.colours(["token", "mean"])
    x = charts.x_axis("predicted by the lemma [percentile of the tokens]", low=0, high=100)
    y = charts.y_axis("measured [percentile of the tokens]", low=0, high=100)
    for checkpoint in study.intervened():
        ranks = [
            [100 * (ranks_of(values) - 0.5) / len(values) for values in pair]
            for pair in changes(artefacts, checkpoint)
        ]
        found = with_interval(lemma_correlation(artefacts, checkpoint), ".2f")
        title = f"{title_of(study, checkpoint)}: rank correlation {found}"
        layers = charts.points(_tokens(ranks, each), x, y, group)
        panels.append(
            charts.panel([*layers, *charts.lines(_means(ranks), x, y, group)], title, 260)
        )
    caption = (
        "Entropy change of tokens of the rollout by one update in which nothing is silenced: what the "
        "lemma predicts, -p (log p + H) A, against what was measured, as percentiles of the tokens of a "
        f"repetition. Points: at most {each:,} tokens of a panel. Line: means of {BINS} equal parts, with "
        "95 % intervals over the repetitions."
    )
    return charts.grid(panels, caption, columns=2)


def _tokens(ranks: Sequence[Any], number: int) -> list[dict[str, Any]]:
    """Return evenly spaced tokens of all repetitions."""
    both = [np.concatenate([pair[axis] for pair in ranks]) for axis in (0, 1)]
    every = -(-len(both[0]) // number) or 1
    places = zip(*(values[::every] for values in both), strict=True)
    return [{"x": x, "y": y, "group": "token"} for x, y in places]


def _means(ranks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the mean measured percentile in equal parts of the predicted ones."""
    rows = []
    for part in range(BINS):
        low, high = 100 * part / BINS, 100 * (part + 1) / BINS
        inside = [y[(x > low) & (x <= high)] for x, y in ranks]
        if means := [float(values.mean()) for values in inside if len(values)]:
            found = charts.interval(mean_of_seeds(means))
            rows.append({"x": (low + high) / 2, "group": "mean", **found})
    return rows
