"""Figures and table of the interventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.analysis.columns import Column
from stapo.analysis.grids import Grid
from stapo.analysis.interventions import (
    QUANTITIES,
    RULE,
    Values,
    arm_title,
    causal_effect,
    changes,
    difference,
    lemma_correlation,
    lemma_signs,
    lemma_sizes,
    measured,
    ranks_of,
    title_of,
)
from stapo.analysis.stability import with_interval
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.study import Checkpoint, Study

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
    return Chart(panels=panels, columns=2, share_y=False, caption=_caption(study))


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def scaled(unit: str, found: Sequence[Interval]) -> tuple[float, str]:
    """Return the power of ten that makes numbers easy to read, and their unit after division by it."""
    ends = [abs(end) for one in found for end in (one.low, one.value, one.high) if isfinite(end)]
    largest = max(ends, default=0.0)
    power = floor(log10(largest)) if 0 < largest < 0.1 else 0
    factor = f"10{str(power).translate(SUPERSCRIPTS)}" if power else ""
    written = f"{factor} {unit}".strip()
    return 10.0**power, f" [{written}]" if written else ""


def _caption(study: Study) -> str:
    number = study.interventions.repetitions
    return (
        f"One update of a checkpoint from the same weights and the same rollout, in {number} repetitions: "
        "arms that silence equally many tokens, minus the update in which nothing is silenced. Entropy and "
        "reward are changes by the update. 95 % intervals over the repetitions (Student's t)."
    )


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm at one checkpoint."""

    checkpoint: str
    arm: str
    silenced: float
    """Tokens per update, the mean over the repetitions."""
    values: Mapping[str, Interval]
    """Quantity -> value without silencing, or the difference of the arm from it."""


def table(artefacts: Artefacts) -> Grid:
    """Return the table of the interventions, a row per checkpoint and arm.

    Raises:
        DamagedFileError: results of interventions are missing, damaged or outdated.
    """
    study, rows = artefacts.study, []
    for checkpoint in study.intervened():
        done = artefacts.intervention(checkpoint).numbers.repetitions
        for arm in ARMS:
            values = {
                name: mean_of_seeds([*map(float, measured(done, name, arm))])
                if arm == NOTHING
                else difference(done, name, arm)
                for name in QUANTITIES
            }
            silenced = float(np.mean([one.arms[arm].silenced for one in done]))
            title = title_of(study, checkpoint)
            row = ArmRow(
                checkpoint=title, arm=arm_title(study, arm), silenced=silenced, values=values
            )
            rows.append(row)
    return Grid(columns=COLUMNS, rows=rows, caption=_caption(study), notes=notes(artefacts))


def _column(name: str) -> Column[ArmRow]:
    return Column(
        QUANTITIES[name].heading, lambda row: with_interval(row.values[name], "+.2g"), text=True
    )


COLUMNS: list[Column[ArmRow]] = [
    Column("Checkpoint", lambda row: row.checkpoint, text=True),
    Column("Arm", lambda row: row.arm, text=True),
    Column("Silenced tokens", lambda row: row.silenced, ".1f"),
    *map(_column, QUANTITIES),
]


def notes(artefacts: Artefacts) -> list[str]:
    """Return the sentences below the table: how to read it, the answer, and the rank correlations."""
    study, found = artefacts.study, causal_effect(artefacts)
    lines = [
        f"Rows of {ARMS[NOTHING]}: what the update changes, gradient norm, and cosine 1 with itself. All "
        "other rows: differences from it.",
        f"Does silencing cause stability here? {found.verdict.capitalize()}. {found.reason} {RULE}",
    ]
    for effect in found.effects:
        parts = ", ".join(
            f"{ARMS[arm][0].lower()}{ARMS[arm][1:]} {with_interval(one, '+.2g')}"
            for arm, one in effect.against.items()
        )
        lines.append(
            f"{title_of(study, effect.checkpoint)}: {effect.verdict}; |change of entropy| with "
            f"{arm_title(study, SILENCED)} minus that with: {parts}."
        )
        lines.append(
            f"{title_of(study, effect.checkpoint)}: {_lemma(artefacts, effect.checkpoint)}"
        )
    return lines


def _lemma(artefacts: Artefacts, checkpoint: Checkpoint) -> str:
    """Return how well the lemma predicts the entropy change of tokens, in a sentence."""
    signed = with_interval(lemma_correlation(artefacts, checkpoint), ".2f") or "undefined"
    sizes = with_interval(lemma_sizes(artefacts, checkpoint), ".2f") or "undefined"
    signs = with_interval(lemma_signs(artefacts, checkpoint), ".0f") or "undefined"
    return (
        f"rank correlation of the lemma's prediction with the entropy change of tokens {signed}; of their "
        f"absolute values {sizes}; tokens whose entropy moves in the predicted direction {signs} %."
    )
