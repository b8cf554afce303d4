"""Quadrants of probability and entropy of the tokens of correct answers (A > 0).

Of each quadrant: its tokens per training; its density, the share in all tokens with A > 0; the mean norm of
the surrogate's gradient at the logits of a token, without the loss's divisor (0 where the ratio is
clipped), and by how many percent it exceeds that of the quadrant of high probability and high entropy; its
share in the sum of squared norms over all tokens with A > 0. Thresholds are those of `recorded`.
"""

from dataclasses import dataclass, replace
from math import nan

import numpy as np

from stapo.analysis.evidence.estimates import (
    Array,
    Estimate,
    Mask,
    Sample,
    count,
    mean,
    ratio,
    relative,
    share,
)  # fmt: skip
from stapo.analysis.evidence.recorded import Recorded
from stapo.reference import confidence, paper

NAMES = (
    "low probability, low entropy (S2T silences)",
    "low probability, high entropy",
    "high probability, low entropy",
    "high probability, high entropy",
)


@dataclass(frozen=True)
class Quadrant:
    """A quadrant of one method and size."""

    size: str
    title: str
    name: str
    tokens: Estimate
    """Number per training."""
    density: Estimate
    """Share in the tokens with A > 0."""
    norm: Estimate
    against: Estimate
    """Percent by which the norm exceeds that of the last quadrant; nan for this one."""
    gradient_share: Estimate
    """Share in the sum of squared norms of the tokens with A > 0."""


def masks(one: Recorded) -> list[Mask]:
    """Return the tokens of each quadrant, in the order of `NAMES`."""
    return [
        one.correct & (one.rare == rare) & (one.sure == sure)
        for rare in (True, False)
        for sure in (True, False)
    ]


def quadrants(one: Recorded) -> list[Quadrant]:
    """Return the quadrants of one method and size."""
    sample, found, known = one.sample, masks(one), one.measured
    kinds = (one.silenced, one.retained, one.is_kind("other"), one.is_kind("other"))
    norm = np.where(known, one.norm, 0.0)
    squares = np.where(one.correct, norm**2, 0.0)
    return [
        Quadrant(
            size=one.size,
            title=one.title,
            name=name,
            tokens=count(sample, part, kind),
            density=share(sample, part, one.correct, kind),
            norm=mean(sample, norm, part & known),
            against=relative(sample, norm, part & known, found[-1] & known)
            if name != NAMES[-1]
            else Estimate(nan, nan, nan, 0),
            gradient_share=_part_of(sample, squares, part),
        )
        for name, part, kind in zip(NAMES, found, kinds, strict=True)
    ]


def _part_of(sample: Sample, squares: Array, part: Mask) -> Estimate:
    """Return the share of a class in a sum; its interval ends at 1, and a class without a record has none."""
    found = ratio(sample, np.where(part, squares, 0.0), squares)
    if not part.any():
        return replace(found, low=nan, high=nan)
    return replace(found, high=min(found.high, 1.0))


def paper_note() -> str:
    """Return what the paper prints of the gradient norm of spurious tokens."""
    stated = paper()["quadrants"]
    return (
        f"The paper ({stated['revision']}, {stated['size']} under {stated['under']}) prints "
        f"{stated['spurious_against_high_high']:+.1f} % for the first quadrant against the last "
        f"({confidence(stated['confidence'])})."
    )
