"""What a trainer under test is given and must give back, and the fixtures: inputs with expected results.

`fixtures.json` is language neutral: `batches` holds the inputs by name, `expected` one entry per batch and
method with `selection_args`, `keep` (B, T), `threshold` (null where there is none), `divisor` (B, T), `loss`
and `gradient` (B, T), the derivative of the loss, which is minimised, with respect to the current log-probs.
`write_fixtures()` makes it anew.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from stapo.conformance.reference import (
    Mask,
    Table,
    divisors,
    kept_by_entropy,
    silenced_by_s2t,
    token_weight,
)
from stapo.methods import METHODS, Method

FIXTURES = Path(__file__).with_name("fixtures.json")
METHOD_NAMES = ("grpo", "justrl", "20-entropy", "stapo", "stapo-v2")
TABLES = ("logps", "old_logps", "ref_logps", "entropies", "old_entropies")
BOUNDARY = "at the boundaries"
BOUNDARY_TAU_P = 0.25
"""No double has the exponential 0.002; of log 0.25 it is 0.25 exactly, in single precision too."""

Layout = list[list[list[int]]]
"""Ranks, each a list of micro-batches, each a list of rows of the mini-batch."""


@dataclass(frozen=True)
class MiniBatch:
    """One optimiser step's inputs; log-probs and entropies in nats, double precision."""

    logps: Tensor
    """(B, T), of the current policy; the gradient is taken with respect to it."""
    old_logps: Tensor
    """(B, T), of the policy that produced the responses."""
    ref_logps: Tensor
    """(B, T), of the reference, for a KL term."""
    entropies: Tensor
    """(B, T), of the current policy."""
    old_entropies: Tensor
    """(B, T), of the policy that produced the responses."""
    advantages: Tensor
    """(B,)."""
    mask: Tensor
    """(B, T) bool, true on response tokens; responses start at position 0."""

    def take(self, rows: Tensor) -> "MiniBatch":
        """Return some rows."""
        return MiniBatch(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


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
    if method not in METHOD_NAMES:
        raise ValueError(f"method: expected one of {', '.join(METHOD_NAMES)}, found {method}")
    record = json.loads(FIXTURES.read_text())
    return [
        as_fixture(entry, mini_batch(record["batches"][entry["batch"]]))
        for entry in record["expected"]
        if entry["method"] == method
    ]


def as_fixture(entry: Mapping[str, Any], batch: MiniBatch) -> Fixture:
    """Return an entry of `expected` with its batch."""
    name, method = entry["batch"], entry["method"]
    return Fixture(
        name=name,
        method=at_boundary(method) if name == BOUNDARY else METHODS[method],
        batch=batch,
        keep=torch.tensor(entry["keep"], dtype=torch.bool),
        threshold=entry["threshold"],
        divisor=torch.tensor(entry["divisor"], dtype=torch.double),
        loss=entry["loss"],
        gradient=torch.tensor(entry["gradient"], dtype=torch.double),
    )


def at_boundary(name: str) -> Method:
    """Return a method with the tau_p that a probability can be equal to."""
    method = METHODS[name]
    if "tau_p" not in method.selection_args:
        return method
    return replace(method, selection_args={**method.selection_args, "tau_p": BOUNDARY_TAU_P})


def mini_batch(tables: Mapping[str, Any]) -> MiniBatch:
    """Return nested lists as tensors."""
    tensors = {name: torch.tensor(tables[name], dtype=torch.double) for name in TABLES}
    advantages = torch.tensor(tables["advantages"], dtype=torch.double)
    mask = torch.tensor(tables["mask"], dtype=torch.bool)
    return MiniBatch(**tensors, advantages=advantages, mask=mask)


def select(method: Method, tables: Mapping[str, Any], prefix: str = "old_") -> tuple[Mask, Any]:
    """Return kept tokens and threshold of a method on nested lists; `prefix` names the policy."""
    logps, entropies = tables[f"{prefix}logps"], tables[f"{prefix}entropies"]
    if method.selection == "silence_spurious":
        args = method.selection_args
        return silenced_by_s2t(logps, entropies, tables["advantages"], tables["mask"], args)
    if method.selection == "keep_high_entropy":
        fraction = float(method.selection_args["fraction"])
        return kept_by_entropy(entropies, tables["mask"], fraction), None
    return [list(row) for row in tables["mask"]], None


def expect(name: str, method_name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expected results of one method on one batch, by plain loops."""
    method = at_boundary(method_name) if name == BOUNDARY else METHODS[method_name]
    keep, threshold = select(method, tables)
    divisor = divisors(keep, method.aggregation)
    clip, loss = (method.clip_low, method.clip_high), 0.0
    gradient: Table = [[0.0] * len(row) for row in keep]
    for b, row in enumerate(keep):
        for t, kept in enumerate(row):
            if kept:
                value, slope = token_weight(
                    tables["logps"][b][t],
                    tables["old_logps"][b][t],
                    tables["ref_logps"][b][t],
                    tables["advantages"][b],
                    clip,
                    method.kl_coefficient,
                )
                loss -= value / divisor[b][t]
                gradient[b][t] = -slope / divisor[b][t]
    return {
        "batch": name,
        "method": method_name,
        "selection_args": dict(method.selection_args),
        "keep": keep,
        "threshold": threshold,
        "divisor": divisor,
        "loss": loss,
        "gradient": gradient,
    }


# What the batches are ----------------------------------------------------------------------------


def random_tables(seed: int, size: int = 6, width: int = 8, rare: float = 0.3) -> dict[str, Any]:
    """Return a batch in which a share of the tokens is rare and every ratio lies inside the clip."""
    draw = Random(seed)
    lengths = [draw.randint(2, width) for _ in range(size)]
    lengths[0] = width
    tables: dict[str, Any] = {name: [] for name in TABLES}
    for _ in range(size):
        old = [
            log(draw.uniform(0.0003, 0.0019) if draw.random() < rare else draw.uniform(0.0022, 0.9))
            for _ in range(width)
        ]
        tables["old_logps"].append(old)
        tables["logps"].append([logp + draw.uniform(-0.15, 0.15) for logp in old])
        tables["ref_logps"].append([logp + draw.uniform(-0.5, 0.5) for logp in old])
        tables["old_entropies"].append([draw.uniform(0.01, 3.0) for _ in range(width)])
        tables["entropies"].append([draw.uniform(0.01, 3.0) for _ in range(width)])
    tables["advantages"] = [draw.choice([-1, 1]) * draw.uniform(0.4, 1.6) for _ in range(size)]
    tables["advantages"][0] = abs(tables["advantages"][0])
    tables["mask"] = [[t < length for t in range(width)] for length in lengths]
    return tables


def _with_candidates(seed: int, count: int) -> dict[str, Any]:
    """Return a batch with exactly that many candidates of S2T, in its first row of width 8."""
    tables = random_tables(seed, rare=0.0)
    for t in range(count):
        for name in ("old_logps", "logps"):
            tables[name][0][t] = log(0.001 + 0.0001 * t)
    return tables


def _at_the_boundaries() -> dict[str, Any]:
    """Return a batch with a probability of exactly tau_p, and an entropy that is the threshold."""
    tables = random_tables(40)
    for name in ("old_logps", "logps"):
        tables[name] = [[log(0.4 + 0.05 * t) for t in range(8)] for _ in range(6)]
        tables[name][0][:6] = [log(p) for p in (0.1, 0.12, 0.14, 0.16, 0.18, BOUNDARY_TAU_P)]
    for name in ("old_entropies", "entropies"):
        # The 0.75 quantile of the five candidates is the fourth, 0.4.
        tables[name][0][:6] = [0.2, 0.1, 0.5, 0.4, 0.3, 0.05]
    return tables


def build() -> dict[str, Any]:
    """Return the content of `fixtures.json`."""
    batches = {"ordinary": random_tables(1), "another": random_tables(2, size=7, width=6)}
    beyond = random_tables(3)
    draw = Random(4)
    beyond["logps"] = [[o + draw.uniform(-1, 1) for o in row] for row in beyond["old_logps"]]
    batches["beyond the clip"] = beyond
    on_policy = random_tables(5)
    on_policy["logps"] = [list(row) for row in on_policy["old_logps"]]
    on_policy["entropies"] = [list(row) for row in on_policy["old_entropies"]]
    batches["on policy"] = on_policy
    batches["no advantage"] = {**random_tables(6), "advantages": [0.0] * 6}
    empty = random_tables(7)
    empty["mask"][2] = [False] * 8
    batches["a response without tokens"] = empty
    for count in range(6):
        batches[f"{count} candidates"] = _with_candidates(10 + count, count)
    batches[BOUNDARY] = _at_the_boundaries()
    return {
        "batches": batches,
        "expected": [
            expect(name, method, tables)
            for name, tables in batches.items()
            for method in METHOD_NAMES
        ],
    }


def write_fixtures() -> None:
    """Write `fixtures.json`."""
    FIXTURES.write_text(json.dumps(build()) + "\n")
