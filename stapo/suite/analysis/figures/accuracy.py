"""Accuracy of intermediate checkpoints."""

from typing import Any

from stapo.suite.analysis import charts, curves
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.exhibits import Exhibit
from stapo.suite.study import TrainingRun

EXHIBIT = Exhibit(order=30, title="Accuracy", needs="checkpoints")


def make(artefacts: Artefacts) -> Any:
    """Return accuracy over steps, with the base model as step 0: a panel per decoding and model.

    Each row of panels shows one decoding and some benchmarks, at the steps evaluated on all of them.
    """
    study, panels = artefacts.study, []
    group, x = charts.colours(artefacts.titles()), charts.x_axis("optimiser step", whole=True)
    for decoding, benchmarks in curves.curves_of(study):
        shares = curves.shares_of(artefacts, decoding, benchmarks)
        y = charts.y_axis(curves.accuracy_label(study, benchmarks))
        for model in study.run.models:
            rows: list[dict[str, Any]] = []
            for method in study.run.methods:
                runs = [TrainingRun(model, method, seed) for seed in study.run.seeds]
                lines = {run.seed: curves.accuracy_line(study, run, shares) for run in runs}
                steps = [*next(iter(lines.values()))]
                values = {seed: line.values() for seed, line in lines.items()}
                rows += curves.with_mean(values, steps, study.title(method))
            layers = charts.lines(rows, x, y, group)
            panels.append(charts.panel(layers, f"{model}, {study.decodings[decoding].title}"))
    caption = "Accuracy of the intermediate checkpoints; step 0 is the base model."
    if len(study.run.seeds) > 1:
        caption += " Lines: mean over the training seeds, pale: each training."
    return charts.grid(panels, caption, columns=len(study.run.models), share_y=True)
