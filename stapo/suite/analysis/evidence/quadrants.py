"""Quadrants of tokens by probability and entropy: 4 of tokens with A > 0, 4 more of those with A < 0.

v4 and v5 of the paper have the four classes with A > 0, v1 to v3 all eight; tokens with A = 0 have no
gradient and belong to none. Thresholds are those of `recorded`. Gradient norms are those of the surrogate
at the logits of a token, without the loss's divisor (0 where the ratio is clipped).

The predicted entropy change is that of `predicted_change` of `interventions.py`, with p and H as the token
selection saw them.

The learning potential of v1 to v3 is not computed: its formula is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import nan

import numpy as np

from stapo.suite.analysis.evidence.estimates import Mask, mean, ratio, relative, share
from stapo.suite.analysis.evidence.recorded import Recorded, Tokens
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.reference import CONFIDENCE, paper

SILENCED = " (S2T silences)"
NAMES = (
    f"low probability, low entropy{SILENCED}",
    "low probability, high entropy",
    "high probability, low entropy",
    "high probability, high entropy",
)


@dataclass(frozen=True)
class Quadrant(Tokens):
    """A quadrant of one method and size; its name is one of `NAMES`."""

    advantage: str
    """Sign of A, "> 0" or "< 0"."""
    whole: Mask
    """(n,) tokens with the same sign of A."""
    rare: bool
    sure: bool

    @cached_property
    def share(self) -> Interval:
        """Share in the tokens with the same sign of A."""
        return share(self.recording.sample, self.mask, self.whole)

    @cached_property
    def norm(self) -> Interval:
        """Mean norm of the gradient."""
        return mean(
            self.recording.sample, self.recording.known_norm, self.mask & self.recording.measured
        )

    @cached_property
    def against(self) -> Interval:
        """Percent by which the norm exceeds that of high probability and entropy; nan for this one."""
        if self.name == NAMES[-1]:
            return Interval(nan, nan, nan)
        known, last = (
            self.recording.measured,
            self.whole & ~self.recording.rare & ~self.recording.sure,
        )
        return relative(
            self.recording.sample, self.recording.known_norm, self.mask & known, last & known
        )

    @cached_property
    def gradient_share(self) -> Interval:
        """Share in the sum of squared norms; its interval ends at 1, and none is without a record."""
        squares = np.where(self.whole, self.recording.known_norm**2, 0.0)
        fraction = ratio(self.recording.sample, np.where(self.mask, squares, 0.0), squares)
        if not self.mask.any():
            return replace(fraction, low=nan, high=nan)
        return replace(fraction, high=min(fraction.high, 1.0))

    @cached_property
    def entropy_change(self) -> Interval:
        """Mean of the predicted entropy change."""
        change = self.recording.predicted_change(self.recording.numbers("advantage"))
        return mean(self.recording.sample, change, self.mask)


def quadrants(recording: Recorded, signs: Sequence[str] = ("> 0",)) -> list[Quadrant]:
    """Return the quadrants of one method and size, in the order of `NAMES` for each sign of A."""
    rows = []
    for sign in signs:
        whole: Mask = recording.numbers("advantage") * (1 if sign == "> 0" else -1) > 0
        for name, (rare, sure) in zip(NAMES, product((True, False), repeat=2), strict=True):
            mask: Mask = whole & (recording.rare == rare) & (recording.sure == sure)
            # S2T silences none with A < 0.
            name = name if sign == "> 0" else name.removesuffix(SILENCED)
            rows.append(Quadrant(recording, name, mask, sign, whole, rare, sure))
    return rows


def paper_note() -> str:
    """Return what the paper prints of the gradient norm of spurious tokens."""
    stated = paper()["quadrants"]
    return (
        f"The paper ({stated['revision']}, {stated['size']} under {stated['under']}) prints "
        f"{stated['spurious_against_high_high']:+.1f} % for the first quadrant against the last "
        f"({CONFIDENCE[stated['confidence']]})."
    )
