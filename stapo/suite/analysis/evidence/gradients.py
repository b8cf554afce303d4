"""Gradient norms of single tokens at the logits and at all weights, as interventions measured them.

Tokens are those of rollouts at the same weights, so rollouts are the units of the intervals and checkpoints
strata: tokens of one rollout are not independent. Norms are of the gradient of a token's log-prob.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import get_args

import pandas as pd

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import Mask, Sample, mean, relative, sample_of
from stapo.suite.analysis.evidence.recorded import QUADRANTS
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.records.interventions import Quadrant
from stapo.suite.study import Checkpoint

TITLES: dict[Quadrant, str] = dict(zip(get_args(Quadrant), QUADRANTS, strict=True))
LIKELY: Quadrant = "likely, unsure"
"""High probability and high entropy, with which the others are compared."""
COLUMNS = ("step", "prompt", "quadrant", "weight", "at_logits", "at_weights")


@dataclass(frozen=True)
class Gradients:
    """The sampled tokens of some checkpoints: norms `at_logits` and `at_weights`, by quadrant."""

    sample: Sample
    frame: pd.DataFrame

    def mask(self, quadrant: Quadrant) -> Mask:
        """Return which tokens are of a quadrant."""
        return (self.frame["quadrant"] == quadrant).to_numpy(bool)

    def mean(self, quadrant: Quadrant, place: str) -> Interval:
        """Return the mean norm of a quadrant."""
        return mean(self.sample, self.frame[place].to_numpy(float), self.mask(quadrant))

    def against(self, quadrant: Quadrant, place: str) -> Interval:
        """Return by how many percent the mean norm exceeds that of high probability and high entropy."""
        masks = self.mask(quadrant), self.mask(LIKELY)
        return relative(self.sample, self.frame[place].to_numpy(float), *masks)


def gradients_at(artefacts: Artefacts, checkpoints: Sequence[Checkpoint]) -> Gradients:
    """Return the sampled tokens of some checkpoints; these and their rollouts are step and prompt."""
    rows = [
        {"step": stratum, "prompt": repetition.repetition, **asdict(token)}
        for stratum, checkpoint in enumerate(checkpoints)
        for repetition in artefacts.intervention(checkpoint).numbers.repetitions
        for token in repetition.gradients
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return Gradients(sample_of([frame], artefacts.study.interventions.repetitions), frame)


def spurious_at_weights(
    artefacts: Artefacts, method: str, model: str
) -> tuple[str, Interval] | None:
    """Return by how many percent the norm of spurious tokens at all weights exceeds that of high/high ones.

    It is that of the base model and the checkpoints of a method of one model, whose titles come first; None
    without any.
    """
    study, methods = artefacts.study, (None, method)
    points = [p for p in study.intervened() if p.model == model and p.method in methods]
    if not points:
        return None
    titles = dict.fromkeys(study.title(point.method or "base") for point in points)
    return ", ".join(titles), gradients_at(artefacts, points).against("rare, sure", "at_weights")
