"""One figure per training quantity, the methods in one picture."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stapo import artifacts
from stapo.analysis.cells import read_scores
from stapo.evaluation.statistics import average_at_n
from stapo.study import Study

# Okabe and Ito: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
SMOOTHING = 20
"""A moving mean over steps / SMOOTHING steps is drawn over the raw line."""
PAPER_SILENCED = 0.01
"""Percent of the tokens; the paper stays below it nearly throughout."""


@dataclass(frozen=True)
class Quantity:
    """What a figure shows."""

    label: str
    value: Callable[[dict[str, Any]], float]
    reference: tuple[float, str] | None = None
    """A horizontal line and what it says."""


FIGURES: dict[str, Quantity] = {
    "entropy": Quantity("policy entropy [nats per token]", lambda r: float(r["entropy"])),
    "reward": Quantity("mean reward [-1 to 1]", lambda r: float(r["reward"])),
    "silenced_fraction": Quantity(
        "silenced tokens [%]",
        lambda r: 100 * float(r["silenced_fraction"]),
        (PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
    ),
    "response_length": Quantity("response length [tokens]", lambda r: float(r["response_length"])),
    "gradient_norm": Quantity("gradient norm", lambda r: float(r["gradient_norm"])),
}

ACCURACY_LABEL = "Avg over the benchmarks [%]"

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
    """Return the figure of one quantity: a panel per size, a colour per method, a line per seed."""
    quantity = FIGURES[name]
    sizes = study.run.sizes
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 5.0 * len(sizes), 3.8), dpi=150, layout="constrained")
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for panel, size in zip(panels, sizes, strict=True):
            for method, colour in zip(study.run.methods, _colours(study), strict=True):
                _draw_method(panel, study, size, method, colour, quantity, root)
            if quantity.reference is not None:
                height, text = quantity.reference
                panel.axhline(height, color="0.4", linewidth=0.9, linestyle=":", label=text)
            panel.set_xlabel("optimiser step")
            panel.set_title(size)
        panels[0].set_ylabel(quantity.label)
        panels[-1].legend(fontsize="small")
    return figure


def draw_accuracy(study: Study, root: Path = Path()) -> Figure:
    """Return Avg over the steps: a panel per size and decoding, the base model as step 0."""
    with mpl.rc_context(STYLE):
        columns = [(size, name) for size in study.run.sizes for name in study.run.decodings]
        figure = Figure(figsize=(1.5 + 5.0 * len(columns), 3.8), dpi=150, layout="constrained")
        panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        scores = {name: read_scores(study, name, root) for name in study.run.decodings}
        for panel, (size, name) in zip(panels, columns, strict=True):
            cells = [scores[name].cells[size, "base", b] for b in study.run.benchmarks]
            base = float(np.mean([average_at_n(cell.correct) for cell in cells]))
            for method, colour in zip(study.run.methods, _colours(study), strict=True):
                own = [c for c in scores[name].choices if (c.size, c.method) == (size, method)]
                for i, choice in enumerate(own):
                    panel.plot(
                        [0, *choice.averages],
                        [100 * share for share in (base, *choice.averages.values())],
                        color=colour,
                        marker="o",
                        markersize=3,
                        label=_label(study, method) if i == 0 else None,
                    )
            panel.set_xlabel("optimiser step")
            panel.set_title(f"{size}, {name}")
        panels[0].set_ylabel(ACCURACY_LABEL)
        panels[-1].legend(fontsize="small")
    return figure


def _label(study: Study, method: str) -> str:
    return study.method(method).title.replace("$", r"\$")


def _colours(study: Study) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(study.run.methods))]


def _draw_method(
    panel: Axes,
    study: Study,
    size: str,
    method: str,
    colour: str,
    quantity: Quantity,
    root: Path,
) -> None:
    for i, seed in enumerate(study.run.seeds):
        path = artifacts.METRICS.format(study=study.name, size=size, method=method, seed=seed)
        records = artifacts.read_jsonl(root / path)
        steps = np.array([record["step"] for record in records])
        values = np.array([quantity.value(record) for record in records])
        panel.plot(steps, values, color=colour, alpha=0.2, linewidth=0.7)
        panel.plot(
            steps,
            moving_mean(values, max(1, len(values) // SMOOTHING)),
            color=colour,
            linewidth=1.6,
            label=_label(study, method) if i == 0 else None,
        )


def moving_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the centred moving mean; at the ends over what there is."""
    kernel = np.ones(width)
    count = np.convolve(np.ones(len(values)), kernel, mode="same")
    mean: NDArray[np.float64] = np.convolve(values, kernel, mode="same") / count
    return mean


def figure_bytes(study: Study, name: str, root: Path = Path()) -> dict[str, bytes]:
    """Return one figure as SVG and PNG, the same bytes for the same metrics."""
    accuracy = name == artifacts.ACCURACY
    figure = draw_accuracy(study, root) if accuracy else draw(study, name, root)
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
    paths = []
    for suffix, content in figure_bytes(study, name, root).items():
        path = root / artifacts.FIGURE.format(study=study.name, figure=name, suffix=suffix)
        with artifacts.replace_file(path, "wb") as stream:
            stream.write(content)
        paths.append(path)
    return paths
