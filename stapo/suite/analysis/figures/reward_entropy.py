"""Reward against the entropy that is left: methods are compared fairly where their entropies are equal."""

from statistics import fmean
from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import ALL, Artefacts, models_of
from stapo.suite.analysis.tables.endpoints import ENDPOINTS, endpoint_rows
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=25, title="Reward and entropy")
REWARD, ENTROPY = "reward-last-half", "entropy"


def make(artefacts: Artefacts) -> Any:
    """Return reward against entropy: a panel per model, a point per training; per method for `ALL`."""
    group = charts.colours(artefacts.titles())
    x, y = charts.x_axis(ENDPOINTS[ENTROPY][0]), charts.y_axis(ENDPOINTS[REWARD][0])
    rewards, entropies = ([*endpoint_rows(artefacts, only=name)] for name in (REWARD, ENTROPY))
    panels = []
    for model in models_of(artefacts.study):
        rows = []
        for reward, entropy in zip(rewards, entropies, strict=True):
            if reward.model != model:
                continue
            pairs = [*zip(entropy.values, reward.values, strict=True)]
            if model == ALL:
                pairs = [(fmean(entropy.values), fmean(reward.values))]
            rows += [{"group": reward.title, "x": at, "y": value} for at, value in pairs]
        panels.append(charts.panel(charts.points(rows, x, y, group, size=50), model))
    caption = (
        "Training reward of the last half against entropy of the last tenth, a point for each training; for "
        f"model {ALL} one for each method, the mean over base models. Of two methods with equal entropy the "
        "upper one has more reward. Differences with intervals: table of endpoints."
    )
    return charts.grid(panels, caption)
