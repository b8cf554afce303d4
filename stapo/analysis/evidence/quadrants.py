"""Quadrants of probability and entropy of the tokens of correct answers (A > 0).

Of each quadrant: its tokens per training; its density, the share in all tokens with A > 0; the mean norm of
the surrogate's gradient at the logits of a token, without the loss's divisor (0 where the ratio is
clipped), and by how many percent it exceeds that of the quadrant of high probability and high entropy; its
share in the sum of squared norms over all tokens with A > 0. Thresholds are those of `recorded`.
"""

from dataclasses import dataclass, replace
from math import nan

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.columns import Column
from stapo.analysis.evidence.cells import LEADING, estimated
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
from stapo.analysis.evidence.recorded import Recorded, notes_of, recorded
from stapo.analysis.grids import Grid
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


COLUMNS: list[Column[Quadrant]] = [
    *LEADING,
    Column("Quadrant", lambda row: row.name, text=True),
    Column("Recorded", lambda row: row.tokens.records, ",d"),
    estimated("Tokens", lambda row: row.tokens, ",.0f"),
    estimated("Density [%]", lambda row: row.density, unit=100),
    estimated("Mean gradient norm", lambda row: row.norm),
    estimated("Against high/high [%]", lambda row: row.against, "+.1f"),
    estimated("Of the squared gradient [%]", lambda row: row.gradient_share, unit=100),
]


def paper_note() -> str:
    """Return what the paper prints of the gradient norm of spurious tokens."""
    stated = paper()["quadrants"]
    return (
        f"The paper ({stated['revision']}, {stated['size']} under {stated['under']}) prints "
        f"{stated['spurious_against_high_high']:+.1f} % for the first quadrant against the last "
        f"({confidence(stated['confidence'])})."
    )


def quadrant_table(artefacts: Artefacts) -> Grid:
    """Return the table of quadrants."""
    found = recorded(artefacts)
    return Grid(
        columns=COLUMNS,
        rows=[row for one in found for row in quadrants(one)],
        caption="Tokens of correct answers (advantage > 0) by probability (threshold tau_p) and entropy "
        "(threshold tau_h of S2T in the same mini-batch), estimated from the recorded sample, with 95 % "
        "intervals. Gradient norms are of the surrogate at the logits of a token.",
        notes=[
            "Against high/high: by how many percent the mean gradient norm exceeds that of high probability "
            "and high entropy, which is compared with no other.",
            paper_note(),
            *notes_of(found),
        ],
    )
