"""Figures of the interventions."""

from collections.abc import Sequence
from math import floor, isfinite, log10

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.analysis.interventions import (
    QUANTITIES,
    Values,
    arm_title,
    caption_of,
    changes,
    difference,
    lemma_correlation,
    ranks_of,
    title_of,
)
from stapo.analysis.table import with_interval
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.records.arms import ARMS, NOTHING

SHOWN_TOKENS = 1000
"""Points of a panel, at most."""
BINS = 10


def entropy_change(artefacts: Artefacts) -> Chart:
    """Return predicted against measured entropy change of tokens, both as ranks within their repetition.

    Raises:
        DamagedFileError: results of interventions are missing, damaged or outdated.
    """
    panels = []
    for checkpoint in artefacts.study.intervened():
        ranks = [tuple(map(_percentiles, pair)) for pair in changes(artefacts, checkpoint)]
        found = with_interval(lemma_correlation(artefacts, checkpoint), ".2f")
        panels.append(
            Panel(
                title=f"{title_of(artefacts.study, checkpoint)}: rank correlation {found}",
                x=Axis(label="predicted by the lemma [percentile of the tokens]", low=0, high=100),
                y=Axis(label="measured [percentile of the tokens]", low=0, high=100),
                series=[_points(ranks), _binned(ranks)],
            )
        )
    return Chart(
        panels=panels,
        columns=min(len(panels), 2),
        caption="Entropy change of tokens of the rollout by one update in which nothing is silenced: what "
        "the lemma predicts, -p (log p + H) A, against what was measured, as percentiles of the tokens of a "
        f"repetition. Points: at most {SHOWN_TOKENS:,} tokens. Line: means of {BINS} equal parts, with 95 % "
        "intervals over the repetitions.",
    )


def _percentiles(values: Values) -> Values:
    ranks: Values = 100 * (ranks_of(values) - 0.5) / len(values)
    return ranks


def _points(ranks: Sequence[Sequence[Values]]) -> Series:
    """Return evenly spaced tokens of all repetitions."""
    both = [np.concatenate([pair[axis] for pair in ranks]) for axis in (0, 1)]
    every = -(-len(both[0]) // SHOWN_TOKENS)
    x, y = ([*map(float, values[::every])] for values in both)
    return Series(name="token", x=x, y=y, kind="points", faint=True)


def _binned(ranks: Sequence[Sequence[Values]]) -> Series:
    """Return the mean measured percentile in equal parts of the predicted ones."""
    x, found = [], []
    for part in range(BINS):
        low, high = 100 * part / BINS, 100 * (part + 1) / BINS
        means = [float(y[(x > low) & (x <= high)].mean()) for x, y in ranks if _any(x, low, high)]
        if means:
            x.append((low + high) / 2)
            found.append(mean_of_seeds(means))
    return Series(
        name="mean",
        x=x,
        y=[one.value for one in found],
        low=[one.low for one in found],
        high=[one.high for one in found],
    )


def _any(values: Values, low: float, high: float) -> bool:
    return bool(((values > low) & (values <= high)).any())


SHOWN = ("entropy", "entropy_rollout", "reward", "gradient_norm", "cosine", "kl")
"""Quantities of the figure, a panel each."""


def differences(artefacts: Artefacts) -> Chart:
    """Return what each arm changes, minus what the update without silencing changes.

    Raises:
        DamagedFileError: results of interventions are missing, damaged or outdated.
    """
    study = artefacts.study
    arms = [arm for arm in ARMS if arm != NOTHING]
    panels = []
    for name in SHOWN:
        found = {
            checkpoint: [difference(done, name, arm) for arm in arms]
            for checkpoint in study.intervened()
            for done in [artefacts.intervention(checkpoint).numbers.repetitions]
        }
        scale, unit = scaled(QUANTITIES[name].unit, [one for row in found.values() for one in row])
        series = [
            Series(
                name=title_of(study, checkpoint),
                kind="bars",
                x=[arm_title(study, arm) for arm in arms],
                y=[one.value / scale for one in row],
                low=[one.low / scale for one in row],
                high=[one.high / scale for one in row],
            )
            for checkpoint, row in found.items()
        ]
        label = f"difference in {QUANTITIES[name].title}{unit}"
        panels.append(
            Panel(x=Axis(label=label), series=series, lines=[Line(value=0.0, vertical=True)])
        )
    return Chart(panels=panels, columns=2, share_y=False, caption=caption_of(study))


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def scaled(unit: str, found: Sequence[Interval]) -> tuple[float, str]:
    """Return the power of ten that makes numbers easy to read, and their unit after division by it."""
    ends = [abs(end) for one in found for end in (one.low, one.value, one.high) if isfinite(end)]
    largest = max(ends, default=0.0)
    power = floor(log10(largest)) if 0 < largest < 0.1 else 0
    factor = f"10{str(power).translate(SUPERSCRIPTS)}" if power else ""
    written = f"{factor} {unit}".strip()
    return 10.0**power, f" [{written}]" if written else ""
