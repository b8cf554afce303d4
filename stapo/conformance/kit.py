"""The checks of a method: expected loss and gradient, independent of micro-batches, ranks and padding."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from stapo.conformance.batches import (
    Layout,
    MiniBatch,
    Trainer,
    Update,
    fixtures,
    probe,
    probe_layout,
    whole,
)
from stapo.methods import METHODS

TOLERANCE = 1e-5
"""Tolerance relative to the largest gradient: single precision passes; conventions differ by percents."""
GARBAGE = {
    "logps": -9.0,
    "old_logps": -9.5,
    "ref_logps": -8.0,
    "entropies": 7.0,
    "old_entropies": 5.0,
}
LARGE = {
    "logps": -1.0,
    "old_logps": -80.0,
    "ref_logps": 0.0,
    "entropies": 1e6,
    "old_entropies": 1e6,
}
"""Padding with large values: a ratio of 2e34, which is still finite in single precision."""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    holds: bool
    detail: str


def run_checks(trainer: Trainer, method_name: str) -> list[Check]:
    """Return the results of all checks of a trainer.

    First, its update is compared with the fixtures of the method. Then its update of one mini-batch in a
    single micro-batch is compared with its update of the same mini-batch in several micro-batches, on several
    ranks, in another order, and with padding.

    Args:
        trainer: trainer under test; an exception counts as a failure and is shown.
        method_name: method with fixtures: grpo, justrl, 20-entropy, stapo or stapo-v2.
    """
    checks = [
        _check(
            fixture.name,
            partial(trainer, fixture.batch, whole(fixture.batch), fixture.method),
            Update(fixture.loss, fixture.gradient),
        )
        for fixture in fixtures(method_name)
    ]
    batch, method = probe(method_name), METHODS[method_name]
    try:
        expected = trainer(batch, whole(batch), method)
    except Exception:  # The checks above report it; there is nothing to compare with.
        return checks
    layouts: dict[str, Layout] = {
        "the same in micro-batches of two": [[[row, row + 1] for row in range(0, 12, 2)]],
        "the same in unequal micro-batches": [[[0, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11]]],
        "the same on two ranks": [[list(range(6))], [list(range(6, 12))]],
        "the same on ranks of unequal parts": probe_layout(),
    }
    for name, layout in layouts.items():
        checks.append(_check(name, partial(trainer, batch, layout, method), expected))
    order = torch.tensor([3, 0, 5, 11, 8, 1, 10, 4, 7, 2, 9, 6])
    wider = torch.cat([expected.gradient, expected.gradient.new_zeros(len(batch.mask), 3)], dim=1)
    changes = {
        "the same in another order": (batch.take(order), expected.gradient[order]),
        "the same with garbage as padding": (_pad(batch, 3, GARBAGE), wider),
        "the same with large numbers as padding": (_pad(batch, 3, LARGE), wider),
    }
    for name, (changed, gradient) in changes.items():
        run = partial(trainer, changed, whole(changed), method)
        checks.append(_check(name, run, Update(expected.loss, gradient)))
    return checks


def _check(name: str, run: Callable[[], Update], expected: Update) -> Check:
    try:
        found = run()
    except Exception as error:  # Any exception of a trainer is a failed check.
        return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0][:120])
    if found.gradient.shape != expected.gradient.shape:
        shapes = tuple(found.gradient.shape), tuple(expected.gradient.shape)
        return Check(name, False, f"gradient of shape {shapes[0]}, expected {shapes[1]}")
    scale = max(float(expected.gradient.abs().max()), 1e-3)
    gradient = float((found.gradient.double() - expected.gradient).abs().max()) / scale
    loss = abs(found.loss - expected.loss) / max(abs(expected.loss), 1.0)
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
