"""The table of the interventions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.columns import Column
from stapo.analysis.grids import Grid
from stapo.analysis.interventions import (
    QUANTITIES,
    RULE,
    arm_title,
    causal_effect,
    difference,
    lemma_correlation,
    lemma_signs,
    lemma_sizes,
    measured,
    title_of,
)
from stapo.analysis.stability import with_interval
from stapo.evaluation.statistics import Interval, mean_of_seeds
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.study import Checkpoint, Study


def caption_of(study: Study) -> str:
    """Return what the figure and the table of the interventions show."""
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
    return Grid(columns=COLUMNS, rows=rows, caption=caption_of(study), notes=notes(artefacts))


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
