"""What one update with and without silencing changes, and whether silencing causes stability."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from stapo.analysis import interventions as effects
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import QUANTITIES, arm_title, title_of
from stapo.analysis.table import Column, Table, with_interval
from stapo.evaluation.statistics import mean_of_seeds
from stapo.exhibits import Exhibit
from stapo.records.arms import ARMS, NOTHING, SILENCED
from stapo.records.interventions import Repetition
from stapo.study import Checkpoint

EXHIBIT = Exhibit(order=90, title="One update with and without silencing", needs="interventions")


class ArmRow(NamedTuple):
    """One arm at one checkpoint."""

    checkpoint: str
    arm: str
    done: Sequence[Repetition]


def _shown(row: ArmRow, name: str) -> str:
    """Return a quantity without silencing, or the difference of the arm from it."""
    own = mean_of_seeds([*map(float, effects.measured(row.done, name, row.arm))])
    found = own if row.arm == NOTHING else effects.difference(row.done, name, row.arm)
    return with_interval(found, "+.2g")


def make(artefacts: Artefacts) -> Table:
    """Return the table of the interventions, a row per checkpoint and arm."""
    study = artefacts.study
    first = artefacts.intervention(study.intervened()[0]).numbers.repetitions
    names = effects.quantities_of(first)

    def column(name: str) -> Column[ArmRow]:
        return Column(QUANTITIES[name].heading, lambda row: _shown(row, name), text=True)

    leading: list[Column[ArmRow]] = [
        Column("Checkpoint", lambda row: row.checkpoint, text=True),
        Column("Arm", lambda row: arm_title(study, row.arm), text=True),
        Column(
            "Silenced tokens", lambda row: fmean(o.arms[row.arm].silenced for o in row.done), ".1f"
        ),
    ]
    return Table(
        columns=[*leading, *map(column, names)],
        rows=[
            ArmRow(title_of(study, one), arm, artefacts.intervention(one).numbers.repetitions)
            for one in study.intervened()
            for arm in study.interventions.arms
        ],
        caption=effects.caption_of(study),
        notes=[*_notes(artefacts)],
    )


def _notes(artefacts: Artefacts) -> Iterator[str]:
    """Yield how to read the table, the answer, and the rank correlations."""
    study, found = artefacts.study, effects.causal_effect(artefacts)
    yield (
        f"Rows of {ARMS[NOTHING]}: what the update changes, gradient norm, and cosine 1 with itself. All "
        "other rows: differences from it."
    )
    method = study.method(study.interventions.method)
    arguments = ", ".join(f"{name} {value}" for name, value in method.arguments.items())
    yield f"{method.title} silences with {arguments or 'no arguments'}."
    yield f"Does silencing cause stability here? {found.verdict.capitalize()}. {found.reason} {effects.RULE}"
    for effect in found.effects:
        title = title_of(study, effect.checkpoint)
        parts = ", ".join(
            f"{ARMS[arm][0].lower()}{ARMS[arm][1:]} {with_interval(one, '+.2g')}"
            for arm, one in effect.against.items()
        )
        yield (
            f"{title}: {effect.verdict}; |change of entropy| with {arm_title(study, SILENCED)} minus that "
            f"with: {parts}."
        )
        yield f"{title}: {_lemma(artefacts, effect.checkpoint)}"


def _lemma(artefacts: Artefacts, checkpoint: Checkpoint) -> str:
    """Return how well the lemma predicts the entropy change of tokens, in a sentence."""
    signed, sizes, signs = (
        with_interval(of(artefacts, checkpoint), form) or "undefined"
        for of, form in (
            (effects.lemma_correlation, ".2f"),
            (effects.lemma_sizes, ".2f"),
            (effects.lemma_signs, ".0f"),
        )
    )
    right, total = effects.covariance_signs(artefacts, checkpoint)
    return (
        f"rank correlation of the lemma's prediction with the entropy change of tokens {signed}; of their "
        f"absolute values {sizes}; tokens whose entropy moves in the predicted direction {signs} %. The "
        f"covariance form, -Cov(log p, p A), has the sign of the mean change in {right} of {total} "
        "repetitions."
    )
