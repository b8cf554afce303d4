"""Figures of a quantity of the metrics over the optimiser steps."""

from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import lines_of, rows_of_size, values_of


def over_steps(
    artefacts: Artefacts,
    name: str,
    title: str,
    label: str,
    log: bool = False,
    reference: tuple[float, str] | None = None,
) -> Any:
    """Return a quantity of the metrics: a panel per size, a line per method and one per training.

    On a logarithmic axis, methods whose values are all 0 are left out.

    Args:
        artefacts: the files of the study.
        name: key of the quantity in a record of the metrics.
        title: title of the figure.
        label: label of the vertical axis, with the unit.
        log: whether that axis is logarithmic.
        reference: height and label of a horizontal line.

    Raises:
        DamagedFileError: files of metrics are missing, damaged or incomplete; one line for each file.
    """
    study = artefacts.study
    values = artefacts.of_runs(lambda run: values_of(artefacts, run, name))
    shown = {run: found for run, found in values.items() if not log or (found > 0).any()}
    rows = {size: [*rows_of_size(study, size, shown, positive=log)] for size in study.run.sizes}
    group = charts.colours(artefacts.titles(), (row["group"] for of in rows.values() for row in of))
    x, y = charts.step_axis(), charts.y_axis(label, log=log)
    line = charts.rule(*reference) if reference else []
    caption = f"{title} over the optimiser steps. {lines_of(study)}"
    if log and any((found == 0).any() for found in values.values()):
        caption += (
            " A logarithmic axis has no 0: where a value is 0, its line has a gap, and a method in which "
            "all are 0 is left out."
        )
    return charts.grid(
        [charts.panel([*charts.lines(of, x, y, group), *line], size) for size, of in rows.items()],
        caption,
        share_y=True,
    )
