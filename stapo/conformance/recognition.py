"""Recognition of the conventions of a trainer: threshold, policy, comparisons, divisor.

The tokens that a trainer keeps are those with a gradient, since every kept token of the probe has one. They
are compared with the tokens that each known convention keeps; if several conventions match, all are reported.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product

import torch
from torch import Tensor

from stapo.conformance.batches import (
    Fixture,
    Layout,
    MiniBatch,
    Trainer,
    Update,
    as_fixture,
    fixtures,
    mini_batch,
)
from stapo.conformance.reference import Mask
from stapo.conformance.scenarios import (
    AT_TAU_P,
    AT_THRESHOLD,
    expect,
    random_tables,
    select,
)
from stapo.methods import METHODS, Method

UNKNOWN, NOT_APPLICABLE = "no known convention", "not applicable"
BEHAVIOUR, CURRENT = "the behaviour policy", "the current policy"
PREFIXES = {BEHAVIOUR: "old_", CURRENT: ""}

Scope = list[list[int]]
"""Parts of a mini-batch, each with its own threshold or divisor."""


def whole(batch: MiniBatch) -> Layout:
    """Return a layout with all rows in one micro-batch on one rank."""
    return [[list(range(len(batch.mask)))]]


def probe_layout() -> Layout:
    """Return a layout of twelve rows on two ranks, with micro-batches of unequal size."""
    return [[[0, 1], [2, 3, 4, 5, 6]], [[7, 8, 9], [10, 11]]]


@cache
def probe(method_name: str) -> Fixture:
    """Return the first random batch of twelve rows for which all conventions of a selection differ.

    So do all divisors, for the tokens that each of these conventions keeps.
    """
    method = METHODS[method_name]
    for seed in range(100, 1000):
        tables = random_tables(seed, size=12, width=8, rare=0.4)
        tables["advantages"] = [abs(value) for value in tables["advantages"]]
        batch = mini_batch(tables)
        if method.reads == "none" or all(
            _all_differ((keep for _, keep in _explanations(batch, method, inclusive)), batch.mask)
            for inclusive in (False, True)
        ):
            return as_fixture(expect("probe", method_name, tables), batch)
    raise AssertionError("no probe")


def _all_differ(masks: Iterable[Mask], mask: Tensor) -> bool:
    """Return whether the masks differ, and for each of them the divisors; stop at the first that do not."""
    seen: list[Mask] = []
    for one in masks:
        if one in seen:
            return False
        seen.append(one)
    for keep in map(torch.tensor, seen):
        found = torch.stack([divisor[keep] for _, divisor in _divisors(keep, mask)])
        equal = torch.isclose(found.unsqueeze(0), found.unsqueeze(1), rtol=1e-4).all(dim=2)
        if int(equal.sum()) > len(found):
            return False
    return True


def conventions(trainer: Trainer, method_name: str) -> dict[str, str]:
    """Return the conventions of a trainer: question -> answer.

    Args:
        trainer: trainer under test.
        method_name: method that it is meant to implement.
    """
    method, batch = METHODS[method_name], probe(method_name).batch
    update = trainer(batch, probe_layout(), method)
    keep = _kept(update)
    scope = policy = comparisons = candidates = NOT_APPLICABLE
    inclusive = False
    if method.spec.silenced is not None:
        tau_p = _comparison(trainer, method_name, AT_TAU_P)
        threshold = _comparison(trainer, method_name, AT_THRESHOLD)
        comparisons = f"p {tau_p} tau_p, H {threshold} threshold"
        inclusive = threshold == "<="
        candidates = _without_candidate(trainer, method)
    if method.reads != "none":
        explained = [
            name for name, mask in _explanations(batch, method, inclusive) if mask == keep.tolist()
        ]
        neither = "no selection" if keep.equal(batch.mask) else UNKNOWN
        scope = " or ".join(dict.fromkeys(name for name, _ in explained)) or neither
        policy = " or ".join(dict.fromkeys(name for _, name in explained)) or neither
    return {
        "threshold over": scope,
        "probabilities and entropies of": policy,
        "compares by": comparisons,
        "without a candidate": candidates,
        "divisor": _divisor(update, keep, batch, method),
    }


def _kept(update: Update) -> Tensor:
    return update.gradient != 0


def _scopes(layout: Layout) -> Iterator[tuple[str, Scope]]:
    """Yield the scopes that known trainers use, starting with the paper's."""
    ranks = [[row for micro in rank for row in micro] for rank in layout]
    steps = max(len(rank) for rank in layout)
    yield "the mini-batch", [[row for rank in ranks for row in rank]]
    yield "a rank", ranks
    yield "a micro-batch", [micro for rank in layout for micro in rank]
    together = [[row for rank in layout for row in rank[i]] for i in range(steps)]
    yield "a micro-batch of all ranks together", together


def _policies(method: Method) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name and prefixes of the policies that may provide probabilities and entropies."""
    for (first, p), (second, h) in product(PREFIXES.items(), repeat=2):
        if first == second:
            yield first, (p, h)
        elif method.spec.silenced is not None:
            yield f"{first} (probabilities), {second} (entropies)", (p, h)


def _explanations(
    batch: MiniBatch, method: Method, inclusive: bool
) -> Iterator[tuple[tuple[str, str], Mask]]:
    """Yield (scope, policy) and the tokens of the probe that this convention keeps.

    `inclusive` is whether an entropy equal to the threshold is silenced; such entropies are frequent in small
    scopes.
    """
    alone = "a response", [[row] for row in range(len(batch.mask))]
    scopes = [*_scopes(probe_layout()), alone]
    for (scope, parts), (policy, prefixes) in product(scopes, _policies(method)):
        keep: Mask = [[False] * batch.mask.shape[1] for _ in batch.mask]
        for rows in parts:
            tables = batch.take(torch.tensor(rows)).tables()
            own, _ = select(method, tables, prefixes, threshold_inclusive=inclusive)
            for row, kept in zip(rows, own, strict=True):
                keep[row] = kept
        yield (scope, policy), keep


def _comparison(trainer: Trainer, method_name: str, border: str) -> str:
    """Return < or <=, the comparison that a trainer uses for a token exactly on the border."""
    (fixture,) = [f for f in fixtures(method_name) if f.name == border]
    batch, method = fixture.batch, fixture.method
    keep = _kept(trainer(batch, whole(batch), method)).tolist()
    tables = batch.tables()
    for sign, inclusive in (("<", False), ("<=", True)):
        expected, _ = select(
            method,
            tables,
            tau_inclusive=inclusive and border == AT_TAU_P,
            threshold_inclusive=inclusive and border == AT_THRESHOLD,
        )
        if expected == keep:
            return sign
    return "?"


def _without_candidate(trainer: Trainer, method: Method) -> str:
    batch = mini_batch(random_tables(300, rare=0.0))
    try:
        update = trainer(batch, whole(batch), method)
    except Exception as error:  # Some trainers compute a quantile of no values.
        return f"raises {type(error).__name__}"
    keep = _kept(update)
    if not update.gradient.isfinite().all():
        return "the gradient is not finite"
    if keep.equal(batch.mask):
        return "nothing is silenced"
    return "everything is silenced" if not keep.any() else "some tokens are silenced"


# Divisor ------------------------------------------------------------------------------------------


def _divisor(update: Update, keep: Tensor, batch: MiniBatch, method: Method) -> str:
    """Return the name of the divisor of each token's loss."""
    ratio = torch.exp(batch.logps - batch.old_logps)
    pull = method.kl_coefficient * (1 - torch.exp(batch.ref_logps - batch.logps))
    slope = ratio * batch.advantages.unsqueeze(1) - pull
    found = -(slope / update.gradient)[keep].double()
    known = [
        name
        for name, divisor in _divisors(keep, batch.mask)
        if torch.allclose(found, divisor[keep], rtol=1e-4)
    ]
    if known:
        return " or ".join(known)
    if found.numel() and torch.allclose(found, found.mean(), rtol=1e-4):
        return (
            f"{float(found.mean()):g} everywhere "
            f"({int(keep.sum())} tokens are kept of {int(batch.mask.sum())})"
        )
    return UNKNOWN


def _divisors(keep: Tensor, mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the known divisors of the probe, (B, T) each; they include the engine's mean over ranks."""
    layout = probe_layout()
    every = [("kept tokens", keep), ("all tokens", mask)]
    for what, counted in every[: 1 if keep.equal(mask) else 2]:
        for scope, parts in _scopes(layout):
            totals = _per_row(parts, [float(counted[rows].sum()) for rows in parts])
            sizes = _per_row(parts, [float(len(rows)) for rows in parts])
            name = f"{what} of {scope}"
            if scope == "the mini-batch":
                yield name, totals.expand(mask.shape)
                name += ", and once more the number of ranks"
                yield name, totals.expand(mask.shape) * len(layout)
                continue
            # A mean over micro-batches is taken rank by rank, then over ranks.
            numbers = [float(len(parts))] * len(parts)
            if scope == "a micro-batch":
                numbers = [float(len(rank) * len(layout)) for rank in layout for _ in rank]
                by_sum = f"{name}, then the sum over these and the mean over ranks"
                yield by_sum, totals.expand(mask.shape) * len(layout)
            by_mean = totals * _per_row(parts, numbers)
            yield f"{name}, then the mean over these", by_mean.expand(mask.shape)
            by_size = totals * len(mask) / sizes
            yield f"{name}, then the mean over these by their sequences", by_size.expand(mask.shape)
        yield from _divisors_by_response(what, counted, layout)


def _divisors_by_response(
    what: str, counted: Tensor, layout: Layout
) -> Iterator[tuple[str, Tensor]]:
    lengths = counted.sum(dim=1, keepdim=True).double().expand(counted.shape)
    yield f"{what} of each response, then the mean over responses", lengths * len(counted)
    parts = [rows for rank in layout for rows in rank]
    numbers = [float(len(rows) * len(rank) * len(layout)) for rank in layout for rows in rank]
    scaled = lengths * _per_row(parts, numbers)
    yield f"{what} of each response, then the mean over micro-batches' means", scaled


def _per_row(parts: Scope, values: list[float]) -> Tensor:
    """Return a (B, 1) column with the value of its part for each row."""
    column = torch.zeros(sum(len(rows) for rows in parts), 1, dtype=torch.double)
    for rows, value in zip(parts, values, strict=True):
        column[rows] = value
    return column
