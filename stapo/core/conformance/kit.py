"""The checks of a trainer's update, the recognition of its conventions, and the report on both.

The tokens that a trainer keeps are those with a gradient, since every kept token of the probe has one. They
are compared with those that known conventions keep; if several match, all are reported.
"""

import importlib
import sys
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from stapo.core.conformance.batches import (
    PROBE_PARTITION,
    TABLES,
    MiniBatch,
    Partition,
    Trainer,
    Update,
    fixtures,
    probe,
    whole,
)
from stapo.core.methods import METHODS, Method
from stapo.core.objective import SELECTIONS

TOLERANCE = 1e-5
"""Tolerance relative to the largest gradient: single precision passes; conventions differ by percents."""
PARTITIONS: dict[str, Partition] = {
    "the same in micro-batches of two": [[[row, row + 1] for row in range(0, 12, 2)]],
    "the same in unequal micro-batches": [[[0, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11]]],
    "the same on two ranks": [[list(range(6))], [list(range(6, 12))]],
    "the same on ranks of unequal parts": PROBE_PARTITION,
}
ORDER = [3, 0, 5, 11, 8, 1, 10, 4, 7, 2, 9, 6]
PADDINGS = {
    "the same with garbage as padding": (-9.0, -9.5, -8.0, 7.0, 5.0),
    # A ratio of 2e34, which is still finite in single precision.
    "the same with large numbers as padding": (-1.0, -80.0, 0.0, 1e6, 1e6),
}
"""Name of a check -> what stands at positions without response token, in the tensors of `TABLES`."""

SCOPE, POLICY, DIVISOR = "threshold over", "probabilities and entropies of", "divisor"
UNKNOWN, NOT_APPLICABLE = "no known convention", "not applicable"
POLICIES = {"the behaviour policy": "old_", "the current policy": ""}
RANKS = [[row for micro in rank for row in micro] for rank in PROBE_PARTITION]
MICRO_BATCHES = [micro for rank in PROBE_PARTITION for micro in rank]
ROWS = [row for rank in RANKS for row in rank]
SCOPES = {
    "the mini-batch": [ROWS],
    "a rank": RANKS,
    "a micro-batch": MICRO_BATCHES,
    # TRL's, which gathers the entropies of a micro-batch.
    "a micro-batch of all ranks together": [
        [row for micro in step for row in micro] for step in zip(*PROBE_PARTITION, strict=True)
    ],
}
"""Name -> parts of the probe with a threshold each, starting with the paper's."""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    holds: bool
    detail: str


def run_checks(trainer: Trainer, method_name: str) -> list[Check]:
    """Return the results of all checks of a trainer; an exception of it is a check that fails.

    Its update is compared with the fixtures of the method, and its update of a mini-batch in one micro-batch
    with those in several, on several ranks, in another order, and with padding.
    """

    def check(
        name: str, batch: MiniBatch, partition: Partition, method: Method, expected: Update
    ) -> Check:
        try:
            actual = _update_of(trainer, batch, partition, method)
        except Exception as error:  # Any exception of a trainer is a failed check.
            return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0][:120])
        return _compared(name, actual, expected)

    checks = [
        check(fixture.name, fixture.batch, whole(fixture.batch), fixture.method, fixture.update)
        for fixture in fixtures(method_name)
    ]
    batch, method = probe(method_name), METHODS[method_name]
    try:
        expected = _update_of(trainer, batch, whole(batch), method)
    except Exception:  # The checks above report it; there is nothing to compare with.
        return checks
    checks += [
        check(name, batch, partition, method, expected) for name, partition in PARTITIONS.items()
    ]
    wider = torch.cat([expected.gradient, expected.gradient.new_zeros(len(batch.mask), 3)], dim=1)
    order = torch.tensor(ORDER)
    changes = {"the same in another order": (batch.take(order), expected.gradient[order])}
    for name, values in PADDINGS.items():
        changes[name] = (_pad(batch, 3, dict(zip(TABLES, values, strict=True))), wider)
    return checks + [
        check(name, changed, whole(changed), method, Update(expected.loss, gradient))
        for name, (changed, gradient) in changes.items()
    ]


def _update_of(trainer: Trainer, batch: MiniBatch, partition: Partition, method: Method) -> Update:
    """Return what a trainer, which is somebody else's function, says; TypeError if it is no update."""
    update: Any = trainer(batch, partition, method)
    if not isinstance(update, Update):
        raise TypeError(f"expected Update(loss, gradient), found {type(update).__name__}")
    return update


def _compared(name: str, actual: Update, expected: Update) -> Check:
    if actual.gradient.shape != expected.gradient.shape:
        shapes = tuple(actual.gradient.shape), tuple(expected.gradient.shape)
        return Check(name, False, f"gradient of shape {shapes[0]}, expected {shapes[1]}")
    scale = max(float(expected.gradient.abs().max()), 1e-3)
    gradient = float((actual.gradient.double() - expected.gradient).abs().max()) / scale
    loss = abs(actual.loss - expected.loss) / max(abs(expected.loss), 1.0)
    holds = gradient <= TOLERANCE and loss <= TOLERANCE
    return Check(name, holds, f"gradient {gradient:.0e}, loss {loss:.0e}")


def _pad(batch: MiniBatch, columns: int, padding: dict[str, float]) -> MiniBatch:
    """Return a batch with more columns, and with `padding` at all positions without response token."""
    mask = torch.cat([batch.mask, batch.mask.new_zeros(len(batch.mask), columns)], dim=1)
    tables = {}
    for name, value in padding.items():
        tables[name] = torch.full(mask.shape, value, dtype=torch.double)
        tables[name][mask] = getattr(batch, name)[batch.mask]
    return replace(batch, **tables, mask=mask)


def conventions(trainer: Trainer, method_name: str) -> dict[str, str]:
    """Return the conventions of a trainer that is meant to implement a method: question -> answer."""
    batch, method = probe(method_name), METHODS[method_name]
    update = trainer(batch, PROBE_PARTITION, method)
    keep = update.gradient != 0
    answers = {SCOPE: NOT_APPLICABLE, POLICY: NOT_APPLICABLE}
    if method.reads != "none":
        same = [
            (scope, policy)
            for scope, policy in product(SCOPES, POLICIES)
            if _kept(batch, method, scope, policy).equal(keep)
        ]
        neither = "no selection" if keep.equal(batch.mask) else UNKNOWN
        answers[SCOPE] = " or ".join(dict.fromkeys(scope for scope, _ in same)) or neither
        answers[POLICY] = " or ".join(dict.fromkeys(policy for _, policy in same)) or neither
    return {**answers, DIVISOR: _divisor(update, keep, batch, method)}


def _kept(batch: MiniBatch, method: Method, scope: str, policy: str) -> Tensor:
    """Return the (B, T) tokens of the probe that a convention keeps."""
    keep, prefix = torch.zeros_like(batch.mask), POLICIES[policy]
    for rows in SCOPES[scope]:
        part = batch.take(torch.tensor(rows))
        logps, entropies = (getattr(part, prefix + name) for name in ("logps", "entropies"))
        tables = logps, entropies, part.advantages, part.mask
        keep[rows] = SELECTIONS[method.selection_name](*tables, **method.arguments_of("selection"))
    return keep


def _divisor(update: Update, keep: Tensor, batch: MiniBatch, method: Method) -> str:
    """Return the name of the divisor of each token's loss."""
    ratio = torch.exp(batch.logps - batch.old_logps)
    pull = method.kl_coefficient * (1 - torch.exp(batch.ref_logps - batch.logps))
    slope = ratio * batch.advantages.unsqueeze(1) - pull
    divisors = -(slope / update.gradient)[keep].double()
    same = [
        name
        for name, divisor in _divisors(keep, batch.mask).items()
        if torch.allclose(divisors, divisor.expand(keep.shape)[keep], rtol=1e-4)
    ]
    return " or ".join(same) or UNKNOWN


def _divisors(keep: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the divisors of known trainers on the probe, (B, 1) each, with the engine's mean over ranks."""
    means = torch.zeros(len(mask), 1, dtype=torch.double)
    for rank, rows in zip(PROBE_PARTITION, RANKS, strict=True):
        means[rows] = float(len(rank) * len(PROBE_PARTITION))
    known = {}
    counts = {"kept tokens": keep} | ({} if keep.equal(mask) else {"all tokens": mask})
    for what, counted in counts.items():
        per_response = counted.sum(dim=1, keepdim=True).double()
        per_micro_batch = torch.zeros_like(per_response)
        for rows in MICRO_BATCHES:
            per_micro_batch[rows] = per_response[rows].sum()
        known[f"{what} of the mini-batch"] = per_response.sum().expand(len(mask), 1)
        known[f"{what} of a micro-batch, then the mean over these"] = per_micro_batch * means
        known[f"{what} of each response, then the mean over responses"] = per_response * len(mask)
    return known


def report(trainer: Trainer, name: str, method: str) -> tuple[list[str], bool]:
    """Return lines with all checks and conventions, and whether all checks hold."""
    checks = run_checks(trainer, method)
    holds = all(check.holds for check in checks)
    width = max(len(check.name) for check in checks)
    lines = [f"{name} as {method}", ""]
    lines.append(f"{'check':{width}}  {'verdict':13}  largest difference, relative")
    for check in checks:
        verdict = "holds" if check.holds else "does not hold"
        lines.append(f"{check.name:{width}}  {verdict:13}  {check.detail}".rstrip())
    try:
        answers = conventions(trainer, method)
    except Exception as error:  # A trainer may raise anything; its checks are printed above.
        return [*lines, "", f"conventions: {type(error).__name__}: {error}"], False
    lines += ["", *(f"{question}: {answer}" for question, answer in answers.items())]
    return lines, holds


def find_trainer(name: str) -> tuple[Trainer, str]:
    """Return a shipped trainer or the function of a module, and the method that it is meant to implement."""
    module, colon, function = name.partition(":")
    if not colon:
        from stapo.core.conformance.trainers import TRAINERS

        if name not in TRAINERS:
            expected = ", ".join(TRAINERS)
            raise ValueError(f"--trainer: expected {expected} or module:function, found {name}")
        return TRAINERS[name]
    sys.path.append("")  # Search the working directory too, after all other directories.
    try:
        trainer: Any = getattr(importlib.import_module(module), function)
    except Exception as error:  # The import of a module may raise anything.
        raise ValueError(f"--trainer: {name}: {type(error).__name__}: {error}") from error
    if not callable(trainer):
        raise ValueError(f"--trainer: {name}: expected a function, found {type(trainer).__name__}")
    return trainer, "stapo"
