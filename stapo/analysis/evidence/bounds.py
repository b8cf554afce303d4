"""Exact gradient norms of recorded tokens against the bounds of the theorem (v5).

With w the derivative of the surrogate by the log-probability of the token (ratio * A, 0 where clipped):

    |grad_z J|^2 = w^2 (1 - 2 p + sum of squared probabilities)
    w^2 (1 - 2 p + e^-H) <= |grad_z J|^2 <= w^2 (2 - 2 p - C H^2)

All recorded tokens with a gradient are compared with their bounds as recorded. They are stored in single
precision, and where p is nearly 1 all three are differences of numbers near 1: a norm may lie outside by 1e-5
(ratio * A)^2 (our choice, ten times the rounding error of an entropy).
"""

import numpy as np

from stapo.analysis.evidence.estimates import Array
from stapo.analysis.evidence.recorded import Recorded

ROUNDING = 1e-5
"""Share of (ratio * A)^2 by which a norm may lie outside."""


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
