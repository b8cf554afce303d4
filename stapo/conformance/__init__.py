"""Hold any trainer's loss against the paper's update, on a CPU in seconds.

A trainer under test is a function: a mini-batch of tables and a layout (which sequences lie in which
micro-batch of which rank) in, loss and gradient out. `run_checks` says whether they are the method's,
`conventions` which thresholds and divisors the trainer uses instead.
"""

from stapo.conformance.batches import Fixture, Layout, MiniBatch, Trainer, Update, fixtures
from stapo.conformance.kit import Check, run_checks
from stapo.conformance.recognition import conventions

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
