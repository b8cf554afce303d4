"""Comparison of any trainer's update with the paper's, on a CPU in seconds; torch alone is needed.

A trainer under test is a function of a mini-batch and a partition (the rows in each micro-batch of each rank)
that returns loss and gradient. `run_checks` reports whether they are those of a method, `conventions` which
thresholds and divisors the trainer uses, and `report` both as lines of text.
"""

from stapo.core.conformance.batches import Fixture, MiniBatch, Partition, Trainer, Update, fixtures
from stapo.core.conformance.kit import Check, conventions, report, run_checks

__all__ = [
    "Check", "Fixture", "MiniBatch", "Partition", "Trainer", "Update", "conventions", "fixtures", "report",
    "run_checks",
]  # fmt: skip
