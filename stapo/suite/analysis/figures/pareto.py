"""Accuracy of every training against the stability of its entropy."""

from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.curves import accuracy_label, smoothing
from stapo.suite.analysis.main_table import of_trainings, shown_benchmarks
from stapo.suite.analysis.tables.stability import entropy_of, warm_up_steps
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=40, title="Accuracy and stability")


def make(artefacts: Artefacts) -> Any:
    """Return accuracy against entropy stability: a panel per model, a point per training."""
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    group = charts.colours(artefacts.titles())
    x = charts.x_axis("spread of the entropy [%], less is more stable", low=0)
    y, panels = charts.y_axis(accuracy_label(study, benchmarks)), []
    spread = artefacts.of_runs(lambda run: 100 * entropy_of(artefacts, run).spread)
    accuracy = of_trainings(artefacts, study.run.decodings[0], benchmarks)
    for model in study.run.models:
        rows = [
            {"group": study.title(run.method), "seed": run.seed, "x": spread[run]}
            | charts.interval(interval)
            for run, interval in accuracy.items()
            if run.model == model
        ]
        panels.append(charts.panel(charts.points(rows, x, y, group, size=50), model))
    caption = (
        "Accuracy of each training under the first decoding, with 95 % intervals over problems, against the "
        f"stability of its entropy: standard deviation / mean of the {smoothing(study.training.steps)}, "
        f"without the first {warm_up_steps(study)} (docs/stability.md). Up and left is better."
    )
    return charts.grid(panels, caption, share_y=True)
