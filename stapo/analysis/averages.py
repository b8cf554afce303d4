"""Accuracy over some benchmarks of every method and of every training, with resamples."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import BOOTSTRAP_SEED, resampled
from stapo.analysis.rows import AVERAGE
from stapo.evaluation.statistics import (
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    interval,
    problem_counts,
)
from stapo.study import Study, TrainingRun

SHOWN = "aime24"


class Accuracies(NamedTuple):
    """Accuracy of every row of a table over some benchmarks, in percent."""

    values: dict[tuple[str, str], Interval]
    """(size, method or `base`) -> mean over benchmarks and seeds; its interval is over problems and seeds."""
    draws: dict[tuple[str, str], Array]
    """The same -> its resamples, paired by problem between rows and between decodings."""

    def difference(self, size: str, ours: str, theirs: str) -> Interval:
        """Return the difference of two methods in points, paired by problem."""
        value = self.values[size, ours].value - self.values[size, theirs].value
        return interval(value, self.draws[size, ours] - self.draws[size, theirs])


def shown_benchmarks(study: Study) -> list[str]:
    """Return AIME24, whose accuracy the paper shows in figures, or all benchmarks of a study without it."""
    return [SHOWN] if SHOWN in study.run.benchmarks else [*study.run.benchmarks]


@lru_cache(maxsize=16)
def accuracies(artefacts: Artefacts, decoding: str, benchmarks: tuple[str, ...]) -> Accuracies:
    """Return the accuracy of every row under a decoding, of the weights that the main table shows."""
    found = resampled(artefacts.study, artefacts.scores(decoding), {AVERAGE: [*benchmarks]})
    return Accuracies(
        {row: cells[AVERAGE] for row, cells in found.cells.items()},
        {row: drawn[AVERAGE] for row, drawn in found.draws.items()},
    )


def of_trainings(
    artefacts: Artefacts, decoding: str, benchmarks: Sequence[str]
) -> dict[TrainingRun, Interval]:
    """Return the accuracy of each training in percent; intervals are over problems."""
    study, cells = artefacts.study, artefacts.scores(decoding).cells
    rng, counts = np.random.default_rng(BOOTSTRAP_SEED), {}
    for name in benchmarks:
        problems = cells[study.run.sizes[0], "base", name].correct.shape[1]
        counts[name] = problem_counts(problems, rng)
    found = {}
    for run in study.runs():
        place = study.run.seeds.index(run.seed)
        parts = {b: cells[run.size, run.method, b].correct[place : place + 1] for b in benchmarks}
        value = np.mean([average_at_n(part) for part in parts.values()])
        alone = np.zeros((len(counts[benchmarks[0]]), 1), dtype=np.int64)
        draws = np.mean(
            [bootstrap_means(part, counts[b], alone) for b, part in parts.items()], axis=0
        )
        found[run] = interval(100 * float(value), 100 * draws)
    return found
