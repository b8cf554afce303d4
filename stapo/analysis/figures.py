"""Figures of training quantities, each with all methods."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stapo import paths
from stapo.analysis.cells import VERDICT_COLUMNS, accuracy, read_tables
from stapo.exhibits import FIGURES
from stapo.files import AGAIN, DamagedFileError, read_published, replace_file
from stapo.study import Checkpoint, Study, TrainingRun
from stapo.text import visible

Values = NDArray[np.float64]
# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
SMOOTHING = 20
"""A moving mean over steps / SMOOTHING steps is drawn over the raw line."""

STYLE: Any = {
    "svg.hashsalt": "stapo",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def draw(study: Study, name: str, root: Path = Path()) -> Figure:
    """Return one figure: a panel per size, a colour per method, a line per seed.

    Raises:
        DamagedFileError: files of metrics are missing, damaged or incomplete; one line for each file.
    """
    shown = FIGURES[name]
    if shown.value is None:
        return draw_accuracy(study, root)
    values = _values(study, name, shown.value, root)
    sizes = study.run.sizes
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 5.0 * len(sizes), 3.8), dpi=150, layout="constrained")
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for panel, size in zip(panels, sizes, strict=True):
            for method, colour in zip(study.run.methods, _colours(study), strict=True):
                for i, seed in enumerate(study.run.seeds):
                    label = _label(study, method) if i == 0 else None
                    _draw_run(panel, values[TrainingRun(size, method, seed)], colour, label)
            if shown.reference is not None:
                height, text = shown.reference
                panel.axhline(height, color="0.4", linewidth=0.9, linestyle=":", label=text)
            panel.set_xlabel("optimiser step")
            panel.set_title(size)
        panels[0].set_ylabel(shown.label)
        panels[-1].legend(fontsize="small")
    return figure


def draw_accuracy(study: Study, root: Path = Path()) -> Figure:
    """Return accuracy over steps, with the base model as step 0: a column per size, a line per seed.

    Each row of panels shows one decoding and some benchmarks, at the steps evaluated on all of them.
    """
    curves, sizes = _curves(study), study.run.sizes
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    with mpl.rc_context(STYLE):
        shape = (1.5 + 5.0 * len(sizes), 0.4 + 3.4 * len(curves))
        figure = Figure(figsize=shape, dpi=150, layout="constrained")
        panels = figure.subplots(len(curves), len(sizes), sharey="row", squeeze=False)
        for row, (decoding, benchmarks) in zip(panels, curves, strict=True):
            cells = [cell for cell in study.cells(decoding) if cell[1] in benchmarks]
            tables, _ = read_tables(study, decoding, cells, root)
            shares = {
                checkpoint: accuracy((tables[checkpoint, b] for b in benchmarks), column)
                for checkpoint in study.checkpoints()
                if {*benchmarks} <= {*study.answered(checkpoint, decoding)}
            }
            for panel, size in zip(row, sizes, strict=True):
                _draw_accuracies(panel, study, size, shares)
                panel.set_title(f"{size}, {decoding}")
            row[0].set_ylabel(_accuracy_label(study, benchmarks))
        for panel in panels[-1]:
            panel.set_xlabel("optimiser step")
        panels[0, -1].legend(fontsize="small")
    return figure


def _curves(study: Study) -> list[tuple[str, list[str]]]:
    """Return decoding and benchmarks of each row of panels, without duplicates."""
    curve, tests = study.evaluation.curve, study.run.benchmarks
    found = [(name, tests) for name in study.run.decodings] if study.full_steps() else []
    if curve and (curve.decoding, {*curve.benchmarks}) not in [(d, {*b}) for d, b in found]:
        found.append((curve.decoding, curve.benchmarks))
    return found


def _accuracy_label(study: Study, benchmarks: list[str]) -> str:
    if {*benchmarks} == {*study.run.benchmarks} and len(benchmarks) > 1:
        return "Avg over the benchmarks [%]"
    names = [f"{name} avg@{study.benchmarks[name].samples}" for name in benchmarks]
    return names[0] + " [%]" if len(names) == 1 else f"Avg over {', '.join(benchmarks)} [%]"


def _draw_accuracies(
    panel: Axes, study: Study, size: str, shares: Mapping[Checkpoint, float]
) -> None:
    """Draw a line for each training of a size; `shares` contains the accuracy of checkpoints with scores."""
    steps = [*study.kept_steps(), study.training.steps]
    for method, colour in zip(study.run.methods, _colours(study), strict=True):
        for i, seed in enumerate(study.run.seeds):
            names = {step: study.checkpoint(size, method, seed, step) for step in steps}
            line = {0: shares[Checkpoint(size)]}
            line |= {step: shares[name] for step, name in names.items() if name in shares}
            panel.plot(
                [*line],
                [100 * share for share in line.values()],
                color=colour,
                marker="o",
                markersize=3,
                label=_label(study, method) if i == 0 else None,
            )


def _label(study: Study, method: str) -> str:
    return visible(study.method(method).title).replace("$", r"\$")


def _colours(study: Study) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(study.run.methods))]


def _values(
    study: Study, name: str, value: Callable[[Mapping[str, Any]], float], root: Path
) -> dict[TrainingRun, Values]:
    """Return the values of a quantity after every step of each training."""
    found, errors = {}, []
    for run, path in zip(study.runs(), paths.metrics_paths(study), strict=True):
        try:
            if not (root / path).exists():
                raise DamagedFileError(f"{path}: missing; run snakemake")
            records = read_published(root / path, ("step", name))
            if [record["step"] for record in records] != list(range(1, study.training.steps + 1)):
                raise DamagedFileError(
                    f"{path}: not the steps 1 to {study.training.steps} in order; {AGAIN}"
                )
            found[run] = np.array([value(record) for record in records])
        except DamagedFileError as error:
            errors.append(str(error))
        except (TypeError, ValueError):
            errors.append(f"{path}: {name} is not a number everywhere; {AGAIN}")
    if errors:
        raise DamagedFileError("\n".join(errors))
    return found


def _draw_run(panel: Axes, values: Values, colour: str, label: str | None) -> None:
    steps = np.arange(1, len(values) + 1)
    smooth = moving_mean(values, max(1, len(values) // SMOOTHING))
    panel.plot(steps, values, color=colour, alpha=0.2, linewidth=0.7)
    panel.plot(steps, smooth, color=colour, linewidth=1.6, label=label)


def moving_mean(values: Values, width: int) -> Values:
    """Return the centred moving mean; at the ends, only over existing values."""
    kernel = np.ones(width)
    count = np.convolve(np.ones(len(values)), kernel, mode="same")
    mean: Values = np.convolve(values, kernel, mode="same") / count
    return mean


def figure_bytes(study: Study, name: str, root: Path = Path()) -> dict[str, bytes]:
    """Return one figure as SVG and PNG; equal metrics give equal bytes."""
    figure = draw(study, name, root)
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }
    drawn = {}
    for suffix in ("svg", "png"):
        stream = io.BytesIO()
        with mpl.rc_context(STYLE):
            figure.savefig(stream, format=suffix, metadata=metadata[suffix])
        drawn[suffix] = stream.getvalue()
    return drawn


def write_figure(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write one figure as SVG and PNG."""
    written = []
    for suffix, content in figure_bytes(study, name, root).items():
        path = root / paths.FIGURE.format(study=study.name, figure=name, suffix=suffix)
        with replace_file(path, "wb") as stream:
            stream.write(content)
        written.append(path)
    return written
