"""What a trainer under test is given and must give back, and the fixtures: inputs with expected results.

`fixtures.json` is language neutral and explains itself: `about` says what its keys mean, `methods` holds
clip, aggregation and KL coefficient, `batches` the inputs by name, `expected` the results of every
method on every batch. `stapo.conformance.scenarios.write_fixtures()` makes it anew.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stapo.methods import CONFORMANCE_METHODS, METHODS, Method
from stapo.training import minibatch

FIXTURES = Path(__file__).with_name("fixtures.json")
TABLES = ("logps", "old_logps", "ref_logps", "entropies", "old_entropies")

Layout = list[list[list[int]]]
"""Ranks, each a list of micro-batches, each a list of rows of the mini-batch."""


@dataclass(frozen=True, kw_only=True)
class MiniBatch(minibatch.MiniBatch):
    """One optimiser step's inputs, and what a forward pass would give; double precision."""

    logps: Tensor
    """(B, T), of the current policy; the gradient is taken with respect to it."""
    entropies: Tensor
    """(B, T), of the current policy."""
    ref_logps: Tensor
    """(B, T), of the reference, for a KL term."""

    def tables(self) -> dict[str, Any]:
        """Return it as nested lists."""
        return {name: getattr(self, name).tolist() for name in (*TABLES, "advantages", "mask")}


@dataclass(frozen=True)
class Update:
    """What the optimiser would see: summed over micro-batches, averaged over ranks as the engine does."""

    loss: float
    gradient: Tensor
    """(B, T), of the loss with respect to `logps`."""


Trainer = Callable[[MiniBatch, Layout, Method], Update]
"""The method is given as data, so that clip, tau_p and the like can be set accordingly."""


@dataclass(frozen=True)
class Fixture:
    """A mini-batch and what a method makes of it."""

    name: str
    method: Method
    batch: MiniBatch
    keep: Tensor
    """(B, T) bool."""
    threshold: float | None
    divisor: Tensor
    """(B, T), of the kept tokens."""
    loss: float
    gradient: Tensor
    """(B, T)."""


@cache
def fixtures(method: str) -> list[Fixture]:
    """Return the shipped fixtures of a method.

    Raises:
        ValueError: no fixtures for such a method.
    """
    if method not in CONFORMANCE_METHODS:
        raise ValueError(
            f"method: expected one of {', '.join(CONFORMANCE_METHODS)}, found {method}"
        )
    record = json.loads(FIXTURES.read_text())
    return [
        as_fixture(entry, mini_batch(record["batches"][entry["batch"]]))
        for entry in record["expected"]
        if entry["method"] == method
    ]


def as_fixture(entry: Mapping[str, Any], batch: MiniBatch) -> Fixture:
    """Return an entry of `expected` with its batch."""
    return Fixture(
        name=entry["batch"],
        method=replace(METHODS[entry["method"]], selection_args=entry["selection_args"]),
        batch=batch,
        keep=torch.tensor(entry["keep"], dtype=torch.bool),
        threshold=entry["threshold"],
        divisor=torch.tensor(entry["divisor"], dtype=torch.double),
        loss=entry["loss"],
        gradient=torch.tensor(entry["gradient"], dtype=torch.double),
    )


def mini_batch(tables: Mapping[str, Any]) -> MiniBatch:
    """Return nested lists as tensors."""
    tensors = {name: torch.tensor(tables[name], dtype=torch.double) for name in TABLES}
    advantages = torch.tensor(tables["advantages"], dtype=torch.double)
    mask = torch.tensor(tables["mask"], dtype=torch.bool)
    return MiniBatch(**tensors, advantages=advantages, mask=mask)
