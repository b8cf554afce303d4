"""Accuracy of intermediate checkpoints."""

from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import accuracies, accuracy_label, curves_of, shares_of
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=30, title="Accuracy", needs="checkpoints")


def make(artefacts: Artefacts) -> Any:
    """Return accuracy over steps, with the base model as step 0: a panel per decoding and size.

    Each row of panels shows one decoding and some benchmarks, at the steps evaluated on all of them.
    """
    study, panels = artefacts.study, []
    group, x = charts.colours(artefacts.titles()), charts.x_axis("optimiser step", whole=True)
    for decoding, benchmarks in curves_of(study):
        shares = shares_of(artefacts, decoding, benchmarks)
        y = charts.y_axis(accuracy_label(study, benchmarks))
        for size in study.run.sizes:
            layers = charts.lines([*accuracies(study, size, shares)], x, y, group)
            panels.append(charts.panel(layers, f"{size}, {study.decodings[decoding].title}"))
    caption = "Accuracy of the intermediate checkpoints; step 0 is the base model."
    if len(study.run.seeds) > 1:
        caption += " Lines: mean over the training seeds, pale: each training."
    return charts.grid(panels, caption, columns=len(study.run.sizes), share_y=True)
