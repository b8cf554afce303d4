"""Entropy and accuracy of JustRL and of JustRL-FullMask."""

from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import (
    accuracies,
    accuracy_label,
    lines_of,
    rows_of_size,
    shares_of,
    values_of,
)
from stapo.analysis.stability import late_curve
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=70, title="JustRL and JustRL-FullMask", needs="full-mask")


def make(artefacts: Artefacts) -> Any:
    """Return entropy and accuracy of both over steps, on two axes: a panel per size.

    Without intermediate checkpoints there is only the entropy.
    """
    study, curve = artefacts.study, late_curve(artefacts.study)
    both = [study.method(name).title for name in ("justrl", "full-mask")]
    group = charts.colours(artefacts.titles(), both)
    runs = [run for run in study.runs() if run.method in ("justrl", "full-mask")]
    values = {run: values_of(artefacts, run, "entropy") for run in runs}
    shares = shares_of(artefacts, *curve) if curve else {}
    x, panels = charts.step_axis(), []
    y = charts.y_axis("policy entropy [nats per token]", low=0)
    for size in study.run.sizes:
        layers = charts.lines([*rows_of_size(study, size, values)], x, y, group)
        if curve:
            rows = [row for row in accuracies(study, size, shares) if row["group"] in both]
            right = charts.y_axis(f"{accuracy_label(study, curve[1])}, dashed")
            dashed = charts.lines(rows, x, right, group, strokeDash=[6, 4])
            panel = charts.panel([charts.layered(layers), charts.layered(dashed)], size)
            panels.append(panel.resolve_scale(y="independent"))
        else:
            panels.append(charts.panel(layers, size))
    about = f" and accuracy (dashed, {study.decodings[curve[0]].title})" if curve else ""
    caption = (
        f"Policy entropy{about} of JustRL and of JustRL-FullMask, which silences every token of low "
        f"probability in correct answers. {lines_of(study)}"
    )
    return charts.grid(panels, caption)
