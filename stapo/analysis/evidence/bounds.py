"""Exact gradient norms of recorded tokens against the bounds of the theorem (v5).

With w the derivative of the surrogate by the log-probability of the token (ratio * A, 0 where clipped):

    w^2 (1 - 2 p + e^-H) <= |grad_z J|^2 = w^2 (1 - 2 p + sum of squared probabilities) <= w^2 (2 - 2 p - C
    H^2)

The figure shows |grad_z J|^2 / w^2 - 1 + 2 p, which the bounds hold between the curves e^-H and 1 - C H^2
of the entropy alone, for every token. w^2 follows from the recorded upper bound; only tokens with p < 0.99
are drawn, since the others' norms are nearly 0 and rounding would show.

All recorded tokens with a gradient are compared with their bounds as recorded. They are stored in single
precision, and where p is nearly 1 all three are differences of numbers near 1: a norm may lie outside by 1e-5
(ratio * A)^2 (our choice, ten times the rounding error of an entropy).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.estimates import Array
from stapo.analysis.evidence.recorded import Recorded, order_of
from stapo.records.tokens import KINDS as KINDS

ROUNDING = 1e-5
"""Share of (ratio * A)^2 by which a norm may lie outside."""
DRAWN_BELOW = 0.99
GROUPS = {
    "silenced": "candidates that S2T silences",
    "retained": "candidates that S2T retains",
    "other": "other tokens",
}


@dataclass(frozen=True)
class Checked:
    """How many recorded tokens lie between their bounds."""

    inside: int
    tokens: int
    excess: float
    """Largest distance outside, as a share of (ratio * A)^2; 0 if all lie inside exactly."""


def checked(found: Sequence[Recorded]) -> Checked:
    """Return how many of the recorded tokens with a gradient lie between their bounds."""
    tokens, inside, excess = 0, 0, 0.0
    for one in found:
        outside = distance_outside(one)
        outside = outside[~np.isnan(outside)]
        tokens += len(outside)
        inside += int((outside <= ROUNDING).sum())
        excess = max(excess, float(np.max(outside, initial=0.0)))
    return Checked(inside, tokens, excess)


def distance_outside(one: Recorded) -> Array:
    """Return (n,) how far norms lie outside their bounds, as a share of w^2; nan without a gradient."""
    exact, low, high, ratio, advantage = (
        one.numbers(name)
        for name in ("gradient_norm_sq", "lower_bound", "upper_bound", "ratio", "advantage")
    )
    with_gradient = np.nan_to_num(exact) > 0
    square = np.where(with_gradient, ratio * advantage, np.nan) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        outside: Array = np.maximum(low - exact, exact - high) / square
    return outside


def factor_of(artefacts: Artefacts, size: str) -> float:
    """Return C of the upper bound, which the number of logits determines."""
    run = next(run for run in artefacts.study.runs() if run.size == size)
    logits = int(artefacts.tokens(run).attrs["vocab_size"])
    return (logits - 1) / (logits * log(logits) ** 2)


def curves(entropies: Array, factor: float) -> dict[str, Array]:
    """Return the bounds at some entropies, in the form of `shifted_norms`."""
    return {"upper bound": 1 - factor * entropies**2, "lower bound": np.exp(-entropies)}


def shifted_norms(one: Recorded, kind: str, factor: float, number: int) -> tuple[Array, Array]:
    """Return entropies and |grad_z J|^2 / w^2 - 1 + 2 p of at most `number` tokens with a gradient."""
    exact, high = one.numbers("gradient_norm_sq"), one.numbers("upper_bound")
    p, entropies = one.numbers("current_probability"), one.numbers("current_entropy")
    fits = one.is_kind(kind) & (np.nan_to_num(exact) > 0) & (np.nan_to_num(p) < DRAWN_BELOW)
    order = np.argsort(order_of(one.frame), kind="stable")
    shown = order[fits[order]][:number]
    exact, high, p, entropies = (values[shown] for values in (exact, high, p, entropies))
    return entropies, exact * (2 - 2 * p - factor * entropies**2) / high - 1 + 2 * p
