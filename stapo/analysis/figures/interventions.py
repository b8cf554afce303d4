"""What single updates with silencing change, minus what the update without it changes."""

from collections.abc import Iterable
from math import floor, isfinite, log10
from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import QUANTITIES, arm_title, caption_of, difference, title_of
from stapo.evaluation.statistics import Interval
from stapo.exhibits import Exhibit
from stapo.records.arms import NOTHING

EXHIBIT = Exhibit(order=140, title="One update with and without silencing", needs="interventions")

SHOWN = ("entropy", "entropy_rollout", "reward", "gradient_norm", "cosine", "kl")
"""Quantities of the figure, a panel each."""


def make(artefacts: Artefacts) -> Any:
    """Return what each arm changes, minus what the update without silencing changes."""
    study, panels = artefacts.study, []
    arms = [arm for arm in study.interventions.arms if arm != NOTHING]
    titles = {one: title_of(study, one) for one in study.intervened()}
    group = charts.colours(titles.values())
    for name in SHOWN:
        found = {
            (title, arm_title(study, arm)): difference(done, name, arm)
            for checkpoint, title in titles.items()
            for done in [artefacts.intervention(checkpoint).numbers.repetitions]
            for arm in arms
        }
        scale, unit = scaled(QUANTITIES[name].unit, found.values())
        rows = [
            {"group": title, **charts.interval(one, 1 / scale, axis="x"), "y": arm}
            for (title, arm), one in found.items()
        ]
        label = f"difference in {QUANTITIES[name].title}{unit}"
        layers = charts.bars(rows, label, group, several=True)
        panels.append(charts.panel([*layers, *charts.rule(0.0, vertical=True)]))
    return charts.grid(panels, caption_of(study), columns=2)


def scaled(unit: str, found: Iterable[Interval]) -> tuple[float, str]:
    """Return the power of ten that makes numbers easy to read, and their unit after division by it."""
    ends = [abs(end) for one in found for end in (one.low, one.value, one.high) if isfinite(end)]
    largest = max(ends, default=0.0)
    power = floor(log10(largest)) if 0 < largest < 0.1 else 0
    written = f"{f'1e{power}' if power else ''} {unit}".strip()
    return 10.0**power, f" [{written}]" if written else ""
