"""The checks of a method: expected loss and gradient, independent of micro-batches, ranks and padding."""

from dataclasses import dataclass, replace

import torch

from stapo.conformance.batches import (
    PROBE_LAYOUT,
    TABLES,
    Layout,
    MiniBatch,
    Trainer,
    Update,
    fixtures,
    probe,
    whole,
)
from stapo.methods import METHODS, Method

TOLERANCE = 1e-5
"""Tolerance relative to the largest gradient: single precision passes; conventions differ by percents."""
LAYOUTS: dict[str, Layout] = {
    "the same in micro-batches of two": [[[row, row + 1] for row in range(0, 12, 2)]],
    "the same in unequal micro-batches": [[[0, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11]]],
    "the same on two ranks": [[list(range(6))], [list(range(6, 12))]],
    "the same on ranks of unequal parts": PROBE_LAYOUT,
}
ORDER = [3, 0, 5, 11, 8, 1, 10, 4, 7, 2, 9, 6]
PADDINGS = {
    "the same with garbage as padding": (-9.0, -9.5, -8.0, 7.0, 5.0),
    # A ratio of 2e34, which is still finite in single precision.
    "the same with large numbers as padding": (-1.0, -80.0, 0.0, 1e6, 1e6),
}
"""Name of a check -> what stands at positions without response token, in the tensors of `TABLES`."""


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

    def check(
        name: str, batch: MiniBatch, layout: Layout, method: Method, expected: Update
    ) -> Check:
        try:
            found = trainer(batch, layout, method)
        except Exception as error:  # Any exception of a trainer is a failed check.
            return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0][:120])
        return _compared(name, found, expected)

    checks = [
        check(one.name, one.batch, whole(one.batch), one.method, one.update)
        for one in fixtures(method_name)
    ]
    batch, method = probe(method_name), METHODS[method_name]
    try:
        expected = trainer(batch, whole(batch), method)
    except Exception:  # The checks above report it; there is nothing to compare with.
        return checks
    checks += [check(name, batch, layout, method, expected) for name, layout in LAYOUTS.items()]
    wider = torch.cat([expected.gradient, expected.gradient.new_zeros(len(batch.mask), 3)], dim=1)
    order = torch.tensor(ORDER)
    changes = {"the same in another order": (batch.take(order), expected.gradient[order])}
    for name, values in PADDINGS.items():
        changes[name] = (_pad(batch, 3, dict(zip(TABLES, values, strict=True))), wider)
    for name, (changed, gradient) in changes.items():
        update = Update(expected.loss, gradient)
        checks.append(check(name, changed, whole(changed), method, update))
    return checks


def _compared(name: str, found: Update, expected: Update) -> Check:
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
