"""Lines over the optimiser steps of every training: quantities of the metrics, and accuracy."""

from collections.abc import Iterable, Iterator, Mapping
from math import nan
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from stapo.core.files import AGAIN, DamagedFileError
from stapo.suite import paths
from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import VERDICT_COLUMNS, Artefacts, read_tables
from stapo.suite.study import Checkpoint, Study, TrainingRun

Values = NDArray[np.float64]
SMOOTHING = 20
"""A moving mean over steps / SMOOTHING steps is drawn over the raw line."""
LINE_POINTS = 200
"""Of a line: of a longer one about every k-th point is drawn, one per one or two pixels."""
SCALES = {"silenced_fraction": 100.0}
"""Quantity -> unit of what is shown of it: percent."""


def rows_of_model(
    study: Study, model: str, values: Mapping[TrainingRun, Values]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the lines of each method at a model, from the (steps,) values of the trainings."""
    for method in study.run.methods:
        by_seed = {seed: values[TrainingRun(model, method, seed)] for seed in study.run.seeds}
        yield from smoothed(by_seed, study.method(method).title)


def lines_of(study: Study) -> str:
    """Return what lines over the steps show, for captions."""
    shown = smoothing(study.training.steps)
    if len(study.run.seeds) > 1:
        return f"Lines: mean over the training seeds. Pale behind them: each training, {shown}."
    return f"Lines: {shown}. Pale behind them: the values of the steps."


def values_of(artefacts: Artefacts, run: TrainingRun, name: str) -> Values:
    """Return the (steps,) values of a quantity of the metrics in a training."""
    return SCALES.get(name, 1) * np.array(_read(artefacts, run, name, FiniteFloat))


def quantiles_of(artefacts: Artefacts, run: TrainingRun) -> dict[float, Values]:
    """Return level -> (steps,) quantile of the entropies in a training, of the levels of all steps."""
    by_step = _read(artefacts, run, "entropy_quantiles", dict[float, float])
    levels = set.intersection(*map(set, by_step))
    return {level: np.array([step[level] for step in by_step]) for level in levels}


def _read(artefacts: Artefacts, run: TrainingRun, name: str, kind: Any) -> Any:
    """Return a quantity of the metrics, of this type in each step."""
    steps = [record.get(name) for record in artefacts.metrics(run)]
    try:
        return TypeAdapter(list[kind]).validate_python(steps)
    except ValidationError as error:
        path = paths.METRICS.format(study=artefacts.study.name, **run._asdict())
        raise DamagedFileError(f"{path}: no number {name} in every step; {AGAIN}") from error


def smoothed(values: Mapping[int, Values], title: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of the lines of a method, from the (steps,) values of its trainings by seed.

    Of several trainings, the moving mean of each is pale, behind their mean. Of one, its values are pale,
    behind their moving mean; there is only one line if both are the same.
    """
    steps = range(1, len(next(iter(values.values()))) + 1)
    width = width_of(len(steps))
    if len(values) == 1 and width > 1:
        ((seed, raw),) = values.items()
        yield from line_of(steps, raw, title, seed=seed, pale=1)
    lines = {seed: moving_mean(line, width) for seed, line in values.items()}
    yield from with_mean(lines, steps, title)


def with_mean(
    lines: Mapping[int, Iterable[float]], x: Iterable[float], title: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the line of each training, by seed; of several, pale behind their mean."""
    x, by_seed = [*x], {seed: [*y] for seed, y in lines.items()}
    for seed, y in by_seed.items():
        yield from line_of(x, y, title, seed=seed, pale=int(len(by_seed) > 1))
    if len(by_seed) > 1:
        yield from line_of(x, np.mean([*by_seed.values()], axis=0), title)


def line_of(
    x: Iterable[float], y: Iterable[float], group: str, **more: Any
) -> list[dict[str, Any]]:
    """Return the rows of a line; of a long one, every k-th and the last."""
    points = [*zip(x, map(float, y), strict=True)]
    every = -(-len(points) // LINE_POINTS) or 1
    shown = [point for i, point in enumerate(points) if i % every == 0 or i == len(points) - 1]
    return [{"x": at, "y": value, "group": group, **more} for at, value in shown]


def width_of(steps: int) -> int:
    """Return the number of steps of the moving mean."""
    return max(1, steps // SMOOTHING)


def smoothing(steps: int) -> str:
    """Return how lines over the steps are smoothed, for captions."""
    width = width_of(steps)
    return f"moving mean over {width} steps" if width > 1 else "values of the steps"


def moving_mean(values: Values, width: int) -> Values:
    """Return the centred moving mean; at the ends, only over existing values."""
    # The mode "same" of numpy would return `width` values where there are fewer.
    kernel, inside = np.ones(width), slice((width - 1) // 2, (width - 1) // 2 + len(values))
    count = np.convolve(np.ones(len(values)), kernel)[inside]
    mean: Values = np.convolve(values, kernel)[inside] / count
    return mean


def shares_of(
    artefacts: Artefacts, decoding: str, benchmarks: list[str]
) -> dict[Checkpoint, float]:
    """Return the accuracy of each checkpoint that answered all of some benchmarks."""
    study, column = artefacts.study, VERDICT_COLUMNS[artefacts.study.evaluation.verdict]
    cells = [cell for cell in study.cells(decoding) if cell[1] in benchmarks]
    tables, _ = read_tables(study, decoding, cells, artefacts.root)
    return {
        checkpoint: fmean(np.mean(tables[checkpoint, b][column].to_numpy()) for b in benchmarks)
        for checkpoint in study.checkpoints()
        if {*benchmarks} <= {*study.answered(checkpoint, decoding)}
    }


def curves_of(study: Study) -> list[tuple[str, list[str]]]:
    """Return decoding and benchmarks of each row of panels, without duplicates."""
    curve, tests = study.evaluation.curve, study.run.benchmarks
    curves = [(name, tests) for name in study.run.decodings] if study.full_steps() else []
    if curve and (curve.decoding, {*curve.benchmarks}) not in [(d, {*b}) for d, b in curves]:
        curves.append((curve.decoding, curve.benchmarks))
    return curves


def accuracy_label(study: Study, benchmarks: list[str]) -> str:
    """Return what an axis of accuracy over some benchmarks is labelled with."""
    if {*benchmarks} == {*study.run.benchmarks} and len(benchmarks) > 1:
        return "Avg over the benchmarks [%]"
    names = [f"{name} avg@{study.benchmarks[name].samples}" for name in benchmarks]
    return names[0] + " [%]" if len(names) == 1 else f"Avg over {', '.join(benchmarks)} [%]"


def accuracy_line(
    study: Study, run: TrainingRun, shares: Mapping[Checkpoint, float]
) -> dict[int, float]:
    """Return step -> accuracy in percent of a training's checkpoints with scores; 0 is the base model."""
    steps = (*study.kept_steps(), study.training.steps)
    line = {0: Checkpoint(run.model)} | {step: study.checkpoint(*run, step) for step in steps}
    return {step: 100 * shares[point] for step, point in line.items() if point in shares}


def over_steps(
    artefacts: Artefacts,
    name: str,
    title: str,
    label: str,
    log: bool = False,
    reference: tuple[float, str] | None = None,
) -> Any:
    """Return a quantity of the metrics: a panel per model, a line per method and one per training.

    `reference` is height and label of a horizontal line.
    """
    study, panels = artefacts.study, []
    values = artefacts.of_runs(lambda run: values_of(artefacts, run, name))
    group = charts.colours(artefacts.titles())
    x, y = charts.x_axis("optimiser step", whole=True), charts.y_axis(label, log=log)
    line = charts.rule(*reference) if reference else []
    for model in study.run.models:
        rows = [*rows_of_model(study, model, values)]
        if log:
            # A group without a value above 0 has no line: Vega warns of a scale without values.
            above = {row["group"] for row in rows if row["y"] > 0}
            rows = [
                row | {"y": row["y"] if row["y"] > 0 else nan}
                for row in rows
                if row["group"] in above
            ]
        panels.append(charts.panel([*charts.lines(rows, x, y, group), *line], model))
    caption = f"{title} over the optimiser steps. {lines_of(study)}"
    if log:
        caption += " A logarithmic axis has no 0: there, a line has a gap."
    return charts.grid(panels, caption, share_y=True)
