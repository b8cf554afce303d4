"""Comparison of any trainer's update with the paper's, on a CPU in seconds.

A trainer under test is a function of a mini-batch and a layout (the rows in each micro-batch of each rank)
that returns loss and gradient. `run_checks` reports whether they are those of a method, `conventions` which
thresholds and divisors the trainer uses.
"""

import warnings

# Without NumPy, which nothing here needs, torch warns when it makes its first tensor.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

# ruff: noqa: E402
from stapo.conformance.batches import Fixture as Fixture
from stapo.conformance.batches import Layout as Layout
from stapo.conformance.batches import MiniBatch as MiniBatch
from stapo.conformance.batches import Trainer as Trainer
from stapo.conformance.batches import Update as Update
from stapo.conformance.batches import fixtures as fixtures
from stapo.conformance.kit import Check as Check
from stapo.conformance.kit import run_checks as run_checks
from stapo.conformance.recognition import conventions as conventions
