"""Accuracy of every training against the stability of its entropy."""

from itertools import product
from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import of_trainings, shown_benchmarks
from stapo.analysis.curves import accuracy_label, smoothing
from stapo.analysis.tables.stability import entropies, warm_up_steps
from stapo.exhibits import Exhibit
from stapo.study import TrainingRun

EXHIBIT = Exhibit(order=40, title="Accuracy and stability")


def make(artefacts: Artefacts) -> Any:
    """Return accuracy against entropy stability: a panel per decoding and size, a point per training."""
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    group = charts.colours(artefacts.titles())
    x = charts.x_axis("spread of the entropy [%], less is more stable", low=0)
    y, panels = charts.y_axis(accuracy_label(study, benchmarks)), []
    spread = {
        TrainingRun(size, method, seed): 100 * one.spread
        for size, method in product(study.run.sizes, study.run.methods)
        for seed, one in zip(study.run.seeds, entropies(artefacts, size, method), strict=True)
    }
    for decoding in study.run.decodings:
        accuracy = of_trainings(artefacts, decoding, benchmarks)
        for size in study.run.sizes:
            rows = [
                {"group": study.title(run.method), "seed": run.seed, "x": spread[run]}
                | charts.interval(found)
                for run, found in accuracy.items()
                if run.size == size
            ]
            layers = charts.points(rows, x, y, group, size=50)
            panels.append(charts.panel(layers, f"{size}, {study.decodings[decoding].title}"))
    caption = (
        "Accuracy of every training, with 95 % intervals over problems, against the stability of its "
        f"entropy: standard deviation / mean of the {smoothing(study.training.steps)}, without the first "
        f"{warm_up_steps(study)} (docs/stability.md). Further up and further left is better."
    )
    return charts.grid(panels, caption, columns=len(study.run.sizes), share_y=True)
