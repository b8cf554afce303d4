"""Comparison of any trainer's update with the paper's, on a CPU in seconds.

A trainer under test is a function of a mini-batch and a layout (the rows in each micro-batch of each rank)
that returns loss and gradient. `run_checks` reports whether they are those of a method, `conventions` which
thresholds and divisors the trainer uses.
"""

import warnings

# Without NumPy, which nothing here needs, torch warns when it makes its first tensor.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

from stapo.conformance.batches import (  # noqa: E402
    Fixture,
    Layout,
    MiniBatch,
    Trainer,
    Update,
    fixtures,
)
from stapo.conformance.kit import Check, run_checks  # noqa: E402
from stapo.conformance.recognition import conventions  # noqa: E402

__all__ = [
    "Check",
    "Fixture",
    "Layout",
    "MiniBatch",
    "Trainer",
    "Update",
    "conventions",
    "fixtures",
    "run_checks",
]
