"""Charts over the optimiser steps of every training: quantities of the metrics, and accuracy."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import VERDICT_COLUMNS, accuracy, read_tables
from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.exhibits import FIGURES, Figure
from stapo.files import AGAIN, DamagedFileError
from stapo.study import Checkpoint, Study, TrainingRun

Values = NDArray[np.float64]
SMOOTHING = 20
"""A moving mean over steps / SMOOTHING steps is drawn over the raw line."""
STEPS = Axis(label="optimiser step", whole=True)


def quantity(artefacts: Artefacts, name: str) -> Chart:
    """Return a quantity of the metrics: a panel per size, a line per method and one per training.

    On a logarithmic axis, methods whose values are all 0 are left out.

    Raises:
        DamagedFileError: files of metrics are missing, damaged or incomplete; one line for each file.
    """
    shown, study = FIGURES[name], artefacts.study
    values = artefacts.of_runs(lambda run: values_of(artefacts, run, name))
    lines = []
    if shown.reference is not None:
        height, text = shown.reference
        lines.append(Line(value=height, label=text))
    zeros = shown.log and any((found == 0).any() for found in values.values())
    return Chart(
        groups=artefacts.titles(),
        caption=_caption(shown, study, zeros),
        panels=[
            Panel(
                title=size,
                x=STEPS,
                y=Axis(label=shown.label, log=shown.log),
                lines=lines,
                series=[
                    one
                    for method, found in by_method(study, size, values)
                    if not shown.log or any((part > 0).any() for part in found.values())
                    for one in over_steps(found, study.method(method).title)
                ],
            )
            for size in study.run.sizes
        ],
    )


def by_method(
    study: Study, size: str, values: Mapping[TrainingRun, Values]
) -> Iterator[tuple[str, dict[int, Values]]]:
    """Yield each method with the values of its trainings at a size, by seed."""
    for method in study.run.methods:
        yield method, {seed: values[TrainingRun(size, method, seed)] for seed in study.run.seeds}


def _caption(shown: Figure, study: Study, zeros: bool) -> str:
    parts = [f"{shown.title} over the optimiser steps. {lines_of(study)}"]
    if zeros:
        parts.append(
            "A logarithmic axis has no 0: where a value is 0, its line leaves the figure at the bottom, and "
            "a method in which all are 0 is left out."
        )
    return " ".join(parts)


def lines_of(study: Study) -> str:
    """Return what lines over the steps show, for captions."""
    smooth = smoothing(study.training.steps)
    if len(study.run.seeds) > 1:
        return f"Lines: mean over the training seeds. Pale behind them: each training, {smooth}."
    if width_of(study.training.steps) > 1:
        return f"Lines: {smooth}. Pale behind them: the values of the steps."
    return f"Lines: {smooth}."


def values_of(artefacts: Artefacts, run: TrainingRun, name: str) -> Values:
    """Return the (steps,) values of a figure's quantity in a training.

    Raises:
        DamagedFileError: the metrics are missing, damaged or incomplete, or a value is not a number.
    """
    value = FIGURES[name].value
    assert value is not None
    records = artefacts.metrics(run)
    path = paths.METRICS.format(study=artefacts.study.name, **run.wildcards)
    for number, record in enumerate(records, start=1):
        if name not in record:
            raise DamagedFileError(f"{path}:{number}: no {name}; {AGAIN}")
    try:
        found = np.array([value(record) for record in records])
        if not np.isfinite(found).all():
            raise ValueError("not finite")
        return found
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"{path}: {name} is not a number everywhere; {AGAIN}") from error


def over_steps(values: Mapping[int, Values], title: str) -> Iterator[Series]:
    """Yield the lines of a method, from the (steps,) values of its trainings by seed.

    Of several trainings, the moving mean of each is pale, behind their mean. Of one, its values are pale,
    behind their moving mean; there is only one line if both are the same.
    """
    steps = list(range(1, len(next(iter(values.values()))) + 1))
    width = width_of(len(steps))
    smooth = {seed: moving_mean(found, width) for seed, found in values.items()}
    if len(values) == 1 and width > 1:
        ((seed, raw),) = values.items()
        yield Series(name=title, group=title, seed=seed, x=steps, y=raw.tolist(), faint=True)
    yield from with_mean({seed: found.tolist() for seed, found in smooth.items()}, steps, title)


def with_mean(
    lines: Mapping[int, Sequence[float]], x: Sequence[float], title: str
) -> Iterator[Series]:
    """Yield the line of each training, by seed; of several, pale behind their mean."""
    several = len(lines) > 1
    for seed, y in lines.items():
        yield Series(name=title, group=title, seed=seed, x=x, y=y, faint=several)
    if several:
        mean = np.mean([*lines.values()], axis=0)
        yield Series(name=title, group=title, x=x, y=mean.tolist())


def width_of(steps: int) -> int:
    """Return the number of steps of the moving mean."""
    return max(1, steps // SMOOTHING)


def smoothing(steps: int) -> str:
    """Return what lines over the steps show, for captions."""
    width = width_of(steps)
    return f"moving mean over {width} steps" if width > 1 else "values of the steps"


def moving_mean(values: Values, width: int) -> Values:
    """Return the centred moving mean; at the ends, only over existing values."""
    # The mode "same" of numpy would return `width` values where there are fewer.
    kernel, inside = np.ones(width), slice((width - 1) // 2, (width - 1) // 2 + len(values))
    count = np.convolve(np.ones(len(values)), kernel)[inside]
    mean: Values = np.convolve(values, kernel)[inside] / count
    return mean


def accuracy_over_steps(artefacts: Artefacts) -> Chart:
    """Return accuracy over steps, with the base model as step 0: a panel per decoding and size.

    Each row of panels shows one decoding and some benchmarks, at the steps evaluated on all of them.
    """
    study, panels = artefacts.study, []
    for decoding, benchmarks in curves_of(study):
        shares = shares_of(artefacts, decoding, benchmarks)
        for size in study.run.sizes:
            panels.append(
                Panel(
                    title=f"{size}, {study.decodings[decoding].title}",
                    x=STEPS,
                    y=Axis(label=accuracy_label(study, benchmarks)),
                    series=[*accuracies(study, size, shares)],
                )
            )
    return Chart(
        groups=artefacts.titles(),
        panels=panels,
        columns=len(study.run.sizes),
        caption="Accuracy of the intermediate checkpoints; step 0 is the base model."
        + (
            " Lines: mean over the training seeds, pale: each training."
            * (len(study.run.seeds) > 1)
        ),
    )


def shares_of(
    artefacts: Artefacts, decoding: str, benchmarks: list[str]
) -> dict[Checkpoint, float]:
    """Return the accuracy of each checkpoint that answered all of some benchmarks."""
    study = artefacts.study
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    cells = [cell for cell in study.cells(decoding) if cell[1] in benchmarks]
    tables, _ = read_tables(study, decoding, cells, artefacts.root)
    return {
        checkpoint: accuracy((tables[checkpoint, b] for b in benchmarks), column)
        for checkpoint in study.checkpoints()
        if {*benchmarks} <= {*study.answered(checkpoint, decoding)}
    }


def curves_of(study: Study) -> list[tuple[str, list[str]]]:
    """Return decoding and benchmarks of each row of panels, without duplicates."""
    curve, tests = study.evaluation.curve, study.run.benchmarks
    found = [(name, tests) for name in study.run.decodings] if study.full_steps() else []
    if curve and (curve.decoding, {*curve.benchmarks}) not in [(d, {*b}) for d, b in found]:
        found.append((curve.decoding, curve.benchmarks))
    return found


def accuracy_label(study: Study, benchmarks: list[str]) -> str:
    """Return what an axis of accuracy over some benchmarks is labelled with."""
    if {*benchmarks} == {*study.run.benchmarks} and len(benchmarks) > 1:
        return "Avg over the benchmarks [%]"
    names = [f"{name} avg@{study.benchmarks[name].samples}" for name in benchmarks]
    return names[0] + " [%]" if len(names) == 1 else f"Avg over {', '.join(benchmarks)} [%]"


def accuracies(study: Study, size: str, shares: Mapping[Checkpoint, float]) -> Iterator[Series]:
    """Yield the lines of each method at a size; `shares` contains the accuracy of checkpoints with scores."""
    for method in study.run.methods:
        lines = {}
        for seed in study.run.seeds:
            line = {0: shares[Checkpoint(size)]}
            for step in (*study.kept_steps(), study.training.steps):
                if (name := study.checkpoint(size, method, seed, step)) in shares:
                    line[step] = shares[name]
            lines[seed] = [100 * share for share in line.values()]
        yield from with_mean(lines, [*line], study.method(method).title)
