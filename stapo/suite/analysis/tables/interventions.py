"""What one update with and without silencing changes, at each checkpoint."""

from collections.abc import Iterator
from itertools import product
from statistics import fmean

import numpy as np
import pandas as pd

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence import updates
from stapo.suite.analysis.evidence.updates import QUANTITIES, Updates
from stapo.suite.analysis.formats import Column, Table, estimated, with_interval
from stapo.suite.evaluation.statistics import Interval, mean_of_seeds
from stapo.suite.exhibits import Exhibit
from stapo.suite.records.arms import ARMS, NOTHING
from stapo.suite.records.interventions import Repetition
from stapo.suite.study import Checkpoint, Study

EXHIBIT = Exhibit(order=90, title="One update with and without silencing", needs="interventions")


def title_of(study: Study, checkpoint: Checkpoint) -> str:
    """Return a checkpoint as people say it."""
    parts = [checkpoint.model, study.title(checkpoint.method or "base")]
    for name in ("seed", "step"):
        if (number := getattr(checkpoint, name)) is not None:
            parts.append(f"{name} {number}")
    return ", ".join(parts)


def make(artefacts: Artefacts) -> Table:
    """Return the table of the interventions, a row per checkpoint and arm."""
    study = artefacts.study

    def column(name: str) -> Column[Updates]:
        def change(row: Updates) -> Interval:
            return row.change(name, minus="" if row.name == NOTHING else NOTHING)

        return estimated(QUANTITIES[name][0], change, "+.2g")

    def done(checkpoint: Checkpoint) -> list[list[Repetition]]:
        return [[made] for made in artefacts.intervention(checkpoint).numbers.repetitions]

    def silenced(row: Updates) -> float:
        return fmean(repetition.arms[row.name].silenced for (repetition,) in row.units)

    return Table(
        columns=[
            Column("Checkpoint", lambda row: row.at, text=True),
            Column("Arm", lambda row: updates.arm_title(study, row.name), text=True),
            Column("Silenced tokens", silenced, ".1f"),
            *map(column, updates.measured(artefacts)),
        ],
        rows=[
            Updates(title_of(study, checkpoint), arm, done(checkpoint))
            for checkpoint, arm in product(study.intervened(), study.interventions.arms)
        ],
        caption="One update of a checkpoint from the same weights and the same rollout, in "
        f"{study.interventions.repetitions} repetitions: arms that silence equally many tokens, minus "
        "the update in which nothing is silenced. Entropy and reward are changes by the update. 95 % "
        "intervals over the repetitions (Student's t): they are about the weights of one checkpoint.",
        notes=[*_notes(artefacts)],
    )


def _notes(artefacts: Artefacts) -> Iterator[str]:
    """Yield how to read the table, and how well the lemma predicts."""
    study = artefacts.study
    yield (
        f"Rows of {ARMS[NOTHING]}: what the update changes, gradient norm, and cosine 1 with itself. All "
        "other rows: differences from it."
    )
    for checkpoint in study.intervened():
        tokens = artefacts.intervention(checkpoint).tokens
        correlation, right = lemma(tokens)
        yield (
            f"{title_of(study, checkpoint)}: rank correlation of the lemma's prediction with the entropy "
            f"change of tokens {with_interval(correlation, '.2f') or 'undefined'}. The covariance form, "
            f"-Cov(log p, p A), has the sign of the mean change in {right} of "
            f"{tokens['repetition'].nunique()} repetitions."
        )


def lemma(tokens: pd.DataFrame) -> tuple[Interval, int]:
    """Return how well both forms of the lemma predict the entropy changes of tokens.

    The first number is Spearman's correlation of predicted and measured changes, a mean over the repetitions.
    The second is the number of repetitions in which -Cov(log p, p A) has the sign of the mean change.

    Source: arXiv 2505.22617, for a softmax policy; that it is the covariance form of STAPO v1 to v3 is our
    reading.
    """
    correlations, right = [], 0
    for _, group in tokens.groupby("repetition"):
        numbers = group[["logp", "entropy", "entropy_after", "advantage"]].to_numpy(float)
        logps, entropies, after, advantages = numbers.T
        change = after - entropies
        predicted = pd.Series(updates.predicted_change(logps, entropies, advantages))
        correlations.append(float(predicted.corr(pd.Series(change), method="spearman")))
        covariance = np.cov(logps, np.exp(logps) * advantages)[0, 1]
        right += bool((covariance < 0) == (change.mean() > 0))
    return mean_of_seeds(correlations), right
