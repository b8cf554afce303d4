"""Quadrants of probability and entropy of the tokens of correct answers (A > 0).

Of each quadrant: its tokens per training; its density, the share in all tokens with A > 0; the mean norm of
the surrogate's gradient at the logits of a token, without the loss's divisor (0 where the ratio is
clipped), and by how many percent it exceeds that of the quadrant of high probability and high entropy; its
share in the sum of squared norms over all tokens with A > 0. Thresholds are those of `recorded`.
"""

from dataclasses import dataclass, replace
from math import isnan, nan

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
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
from stapo.analysis.evidence.recorded import Recorded, notes_of, order_of, recorded
from stapo.reference import confidence, paper

NAMES = (
    "low probability, low entropy (S2T silences)",
    "low probability, high entropy",
    "high probability, low entropy",
    "high probability, high entropy",
)
POINTS = 400
"""Tokens of a quadrant that a panel shows, at most; our choice."""


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


def quadrant_chart(artefacts: Artefacts) -> Chart:
    """Return probability and entropy of recorded tokens by quadrant: a panel per size and method."""
    found = recorded(artefacts)
    about = [paper_note(), *notes_of(found)]
    return Chart(
        groups=NAMES,
        columns=min(len(found), 2),
        panels=[_panel(one) for one in found],
        caption="Recorded tokens of correct answers (advantage > 0) by probability and entropy, at most "
        f"{POINTS} of each quadrant: the number of points says nothing about density. Beside the dot of a "
        "quadrant is its share in these tokens, and by how much its mean gradient norm exceeds that of the "
        f"quadrant of high probability and high entropy. tau_h differs between mini-batches: the line is "
        f"its median. {' '.join(about)}",
    )


def _panel(one: Recorded) -> Panel:
    """Return a panel, with space above and below the points for the numbers of the quadrants."""
    probabilities = np.maximum(one.numbers("probability"), np.finfo(np.float32).tiny)
    entropies = one.numbers("entropy")
    top = float(np.max(entropies, initial=0.0)) or 1.0
    left = min(float(np.min(probabilities, initial=1.0)), one.tau_p / 100) / 2
    lines = [Line(value=one.tau_p, label="tau_p", vertical=True)]
    if len(one.tau_h):
        lines.append(Line(value=float(np.median(one.tau_h)), label="median of tau_h"))
    order = np.argsort(order_of(one.frame), kind="stable")
    series = []
    for i, (quadrant, part) in enumerate(zip(quadrants(one), masks(one), strict=True)):
        shown = order[part[order]][:POINTS]
        rare, sure = i < 2, i % 2 == 0
        corner = (1.2 * (left if rare else one.tau_p), (-0.17 if sure else 1.1) * top)
        series += [
            Series(
                name=quadrant.name,
                kind="points",
                x=probabilities[shown].tolist(),
                y=entropies[shown].tolist(),
                text=[*one.frame["token"].iloc[shown]],
            ),
            Series(
                name=f"numbers of: {quadrant.name}",
                group=quadrant.name,
                kind="points",
                faint=True,
                x=[corner[0]],
                y=[corner[1]],
                text=[_label(quadrant)],
                labelled=True,
            ),
        ]
    return Panel(
        title=f"{one.size}, {one.title}",
        x=Axis(label="probability", log=True, low=left, high=2.0),
        y=Axis(label="entropy [nats]", low=-0.25 * top, high=1.25 * top),
        lines=lines,
        series=series,
    )


def _label(quadrant: Quadrant) -> str:
    if not quadrant.density.value > 0:
        return "no token"
    against = quadrant.against.value
    norm = "" if isnan(against) else f", norm {against:+.0f} %"
    return f"{100 * quadrant.density.value:.3g} %{norm}"
