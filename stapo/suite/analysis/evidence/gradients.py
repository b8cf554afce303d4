"""Gradient norms of single tokens at the logits and at all weights, as interventions measured them.

Tokens are those of rollouts at the same weights, so rollouts are the units of the intervals and checkpoints
strata: tokens of one rollout are not independent. Norms are of the gradient of a token's log-prob.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import Array, Mask, Sample, mean, relative
from stapo.suite.analysis.evidence.quadrants import NAMES
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.records.interventions import Quadrant, TokenGradient
from stapo.suite.study import Checkpoint

QUADRANTS: tuple[Quadrant, ...] = get_args(Quadrant)
"""In the order of `NAMES`."""
TITLES = dict(zip(QUADRANTS, NAMES, strict=True))
LIKELY: Quadrant = "likely, unsure"
"""High probability and high entropy, with which the others are compared."""


@dataclass(frozen=True)
class Gradients:
    """The sampled tokens of some checkpoints."""

    sample: Sample
    tokens: Sequence[TokenGradient]

    def norms(self, place: str) -> Array:
        """Return the norms at a place, `at_logits` or `at_weights`."""
        return np.array([getattr(token, place) for token in self.tokens], dtype=float)

    def mask(self, quadrant: Quadrant) -> Mask:
        """Return which tokens are of a quadrant."""
        return np.array([token.quadrant == quadrant for token in self.tokens], dtype=bool)

    def mean(self, quadrant: Quadrant, place: str) -> Interval:
        """Return the mean norm of a quadrant."""
        return mean(self.sample, self.norms(place), self.mask(quadrant))

    def against(self, quadrant: Quadrant, place: str) -> Interval:
        """Return by how many percent the mean norm exceeds that of high probability and high entropy."""
        masks = self.mask(quadrant), self.mask(LIKELY)
        return relative(self.sample, self.norms(place), *masks)


def gradients_at(artefacts: Artefacts, checkpoints: Sequence[Checkpoint]) -> Gradients:
    """Return the sampled tokens of some checkpoints of a study."""
    rows = [*_rows(artefacts, checkpoints)]
    units = np.array([unit for unit, _ in rows], dtype=np.int64).reshape(-1, 2)
    rollouts, prompt = np.unique(units, axis=0, return_inverse=True)
    weights = np.array([token.weight for _, token in rows], dtype=float)
    training = np.zeros(len(rows), np.int64)
    count = artefacts.study.interventions.repetitions
    sample = Sample(weights, prompt.reshape(-1), rollouts[:, 0], training, 1, count)
    return Gradients(sample, [token for _, token in rows])


def _rows(
    artefacts: Artefacts, checkpoints: Sequence[Checkpoint]
) -> Iterator[tuple[tuple[int, int], TokenGradient]]:
    """Yield stratum and rollout of each token, and the token."""
    for stratum, checkpoint in enumerate(checkpoints):
        for repetition in artefacts.intervention(checkpoint).numbers.repetitions:
            for token in repetition.gradients:
                yield (stratum, repetition.repetition), token


def spurious_at_weights(
    artefacts: Artefacts, method: str, size: str
) -> tuple[str, Interval] | None:
    """Return by how many percent the norm of spurious tokens at all weights exceeds that of high/high ones.

    It is that of the base model and the checkpoints of a method of one size, whose titles come first; None
    without any.
    """
    study, points = artefacts.study, []
    for point in study.intervened():
        if point.size == size and (point.run is None or point.run.method == method):
            points.append(point)
    if not points:
        return None
    titles = dict.fromkeys(
        study.title(point.run.method if point.run else "base") for point in points
    )
    return ", ".join(titles), gradients_at(artefacts, points).against("rare, sure", "at_weights")
