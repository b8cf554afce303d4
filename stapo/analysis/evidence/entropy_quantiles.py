"""Quantiles of the token entropies of each mini-batch over the optimiser steps, from the metrics."""

import numpy as np

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Panel
from stapo.analysis.curves import STEPS, Values, by_method, lines_of, over_steps
from stapo.files import AGAIN, DamagedFileError
from stapo.reference import paper
from stapo.study import TrainingRun


def quantile_chart(artefacts: Artefacts) -> Chart:
    """Return the quantiles over steps: a row per size, a panel per level, lines as in `over_steps`.

    Raises:
        DamagedFileError: metrics are missing or damaged, or a quantile is not a number; one line for each
        file.
    """
    study, stated = artefacts.study, paper()["entropy_quantiles"]
    quantiles = artefacts.of_runs(lambda run: _quantiles(artefacts, run))
    levels = sorted(set.intersection(*(set(one) for one in quantiles.values())), key=float)
    return Chart(
        groups=artefacts.titles(),
        columns=max((len(levels) + 1) // 2, 1),
        share_y=False,
        panels=[
            Panel(
                title=_title(size, level, float(stated["level"])),
                x=STEPS,
                y=Axis(label="entropy [nats]"),
                series=[
                    series
                    for method, values in by_method(
                        study, size, {run: found[level] for run, found in quantiles.items()}
                    )
                    for series in over_steps(values, study.method(method).title)
                ],
            )
            for size in study.run.sizes
            for level in levels
        ],
        caption="Quantiles of the entropies of the response tokens of each mini-batch. "
        f"{lines_of(study)} The paper ({stated['revision']}) finds the "
        "entropies of STAPO above those of the baselines only from the "
        f"{100 * stated['level']:.0f}th percentile on.",
    )


def _title(size: str, level: str, stated: float) -> str:
    """Return the title of a panel, which emphasises the level of the paper."""
    name = f"{size}, {100 * float(level):g}th percentile"
    return f"{name} (the level in the paper)" if float(level) == stated else name


def _quantiles(artefacts: Artefacts, run: TrainingRun) -> dict[str, Values]:
    """Return level -> (steps,) quantiles of a training."""
    records = artefacts.metrics(run)
    try:
        levels = set.intersection(*(set(record["entropy_quantiles"]) for record in records))
        return {
            level: np.array([float(record["entropy_quantiles"][level]) for record in records])
            for level in levels
        }
    except (KeyError, TypeError, ValueError) as error:
        path = paths.METRICS.format(study=artefacts.study.name, **run.wildcards)
        raise DamagedFileError(
            f"{path}: entropy_quantiles are not numbers everywhere; {AGAIN}"
        ) from error
