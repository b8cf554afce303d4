"""Quantiles of the token entropies of each mini-batch over the steps."""

from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.curves import lines_of, quantiles_of, rows_of_model
from stapo.suite.exhibits import Exhibit
from stapo.suite.reference import paper

EXHIBIT = Exhibit(order=60, title="Entropy of the tokens by quantile")


def make(artefacts: Artefacts) -> Any:
    """Return the quantiles over steps: a row per model, a panel per level."""
    study, stated = artefacts.study, paper()["entropy_quantiles"]
    quantiles = artefacts.of_runs(lambda run: quantiles_of(artefacts, run))
    levels = sorted(set.intersection(*(set(by_level) for by_level in quantiles.values())))
    group, x = charts.colours(artefacts.titles()), charts.x_axis("optimiser step", whole=True)
    y, panels = charts.y_axis("entropy [nats]"), []
    for model in study.run.models:
        for level in levels:
            values = {run: by_level[level] for run, by_level in quantiles.items()}
            title = f"{model}, {100 * level:g}th percentile"
            if level == stated["level"]:
                title += " (the level in the paper)"
            layers = charts.lines([*rows_of_model(study, model, values)], x, y, group)
            panels.append(charts.panel(layers, title))
    caption = (
        "Quantiles of the entropies of the response tokens of each mini-batch. "
        f"{lines_of(study)} The paper ({stated['revision']}) finds the entropies of STAPO above those of "
        f"the baselines only from the {100 * stated['level']:.0f}th percentile on."
    )
    return charts.grid(panels, caption, columns=max((len(levels) + 1) // 2, 1))
