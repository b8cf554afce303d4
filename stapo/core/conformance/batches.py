"""Input and output types of a trainer under test, and the fixtures: inputs with expected results.

`fixtures.json` can be used from any language: `about` explains its keys, `methods` contains clip, aggregation
and KL coefficient, `batches` the inputs by name, `expected` the results of every method on every batch. They
were computed by plain loops; the tests compare them with a second implementation.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stapo.core import minibatch
from stapo.core.methods import CONFORMANCE_METHODS, METHODS, Method

FIXTURES = Path(__file__).with_name("fixtures.json")
TABLES = ("logps", "old_logps", "ref_logps", "entropies", "old_entropies")

Partition = list[list[list[int]]]
"""List of ranks, each a list of micro-batches, each a list of rows of the mini-batch."""
PROBE_PARTITION: Partition = [[[0, 1], [2, 3, 4, 5, 6]], [[7, 8, 9], [10, 11]]]
"""Of the twelve rows of a probe on two ranks, with micro-batches of unequal size."""


@dataclass(frozen=True, kw_only=True)
class MiniBatch(minibatch.MiniBatch):
    """Inputs of one optimiser step, with the results of a forward pass; double precision."""

    logps: Tensor
    """(B, T) log-probs of the current policy, with respect to which the gradient is taken."""
    entropies: Tensor
    """(B, T) entropies of the current policy."""
    ref_logps: Tensor
    """(B, T) log-probs of the reference model, for a KL term."""


@dataclass(frozen=True)
class Update:
    """Loss and gradient as the optimiser gets them: summed over micro-batches and averaged over ranks."""

    loss: float
    gradient: Tensor
    """(B, T) gradient of the loss with respect to `logps`."""


Trainer = Callable[[MiniBatch, Partition, Method], Update]
"""Function under test; it gets the method as data, to set its clip, tau_p and other settings."""


@dataclass(frozen=True)
class Fixture:
    """A mini-batch with the expected results of a method."""

    name: str
    method: Method
    batch: MiniBatch
    keep: Tensor
    """(B, T) bool, tokens that contribute to the loss."""
    update: Update


@cache
def fixtures(method: str) -> list[Fixture]:
    """Return the shipped fixtures of a method."""
    if method not in CONFORMANCE_METHODS:
        known = ", ".join(CONFORMANCE_METHODS)
        raise ValueError(f"--method: expected {known}, found {method}")
    record = json.loads(FIXTURES.read_text(encoding="utf-8"))
    return [
        Fixture(
            entry["batch"],
            replace(METHODS[method], args=entry["selection_args"]),
            _mini_batch(record["batches"][entry["batch"]]),
            torch.tensor(entry["keep"], dtype=torch.bool),
            Update(entry["loss"], torch.tensor(entry["gradient"], dtype=torch.double)),
        )
        for entry in record["expected"]
        if entry["method"] == method
    ]


@cache
def probe(method: str) -> MiniBatch:
    """Return a batch of twelve rows on which all conventions of a method's selection and divisor differ."""
    return _mini_batch(json.loads(FIXTURES.read_text(encoding="utf-8"))["probes"][method])


def whole(batch: MiniBatch) -> Partition:
    """Return a partition with all rows in one micro-batch on one rank."""
    return [[list(range(len(batch.mask)))]]


def _mini_batch(tables: Mapping[str, Any]) -> MiniBatch:
    """Return a mini-batch for nested lists."""
    values = {k: torch.tensor(tables[k], dtype=torch.double) for k in (*TABLES, "advantages")}
    return MiniBatch(**values, mask=torch.tensor(tables["mask"], dtype=torch.bool))
