"""The checks of a method, and the conventions that explain what a trainer does instead.

The tokens that a trainer keeps are read off its gradient: in the probes every token has a gradient unless
it is left out. What is found is compared with what each known convention would have given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

from stapo.conformance.batches import (
    BOUNDARY,
    Fixture,
    Layout,
    MiniBatch,
    Trainer,
    Update,
    as_fixture,
    at_boundary,
    expect,
    fixtures,
    mini_batch,
    random_tables,
    select,
)
from stapo.conformance.reference import Mask, silenced_by_s2t
from stapo.methods import METHODS, Method

TOLERANCE = 1e-5
"""Relative to the largest gradient: single precision passes; conventions differ by percents."""
UNKNOWN, NOT_APPLICABLE = "none that the kit knows", "not applicable"

Scope = list[list[int]]
"""Parts of a mini-batch that have a threshold or a divisor of their own."""


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    name: str
    holds: bool
    detail: str


def whole(batch: MiniBatch) -> Layout:
    """Return one rank with one micro-batch."""
    return [[list(range(len(batch.mask)))]]


def probe_layout() -> Layout:
    """Return two ranks with micro-batches of unequal size, for a batch of twelve."""
    return [[[0, 1], [2, 3, 4, 5, 6]], [[7, 8, 9], [10, 11]]]


def probe(method_name: str) -> Fixture:
    """Return the first random batch of twelve that tells all conventions of a selection apart."""
    method = METHODS[method_name]
    for seed in range(100, 200):
        tables = random_tables(seed, size=12, width=8, rare=0.4)
        tables["advantages"] = [abs(value) for value in tables["advantages"]]
        batch = mini_batch(tables)
        masks = [keep for _, keep in _explanations(batch, probe_layout(), method)]
        if method.selection == "keep_all" or all(masks.count(keep) == 1 for keep in masks):
            return as_fixture(expect("probe", method_name, tables), batch)
    raise AssertionError("no probe")


# Checks -------------------------------------------------------------------------------------------


def run_checks(trainer: Trainer, method_name: str) -> list[Check]:
    """Return whether a trainer's update is the method's, and whether it depends on what it must not.

    The second part compares a trainer with itself: cut, spread, shuffled or padded, against in one piece.

    Args:
        trainer: under test; an exception counts as a failure and is shown.
        method_name: with fixtures: grpo, justrl, 20-entropy, stapo or stapo-v2.
    """
    checks = [
        _check(
            fixture.name,
            partial(trainer, fixture.batch, whole(fixture.batch), fixture.method),
            Update(fixture.loss, fixture.gradient),
        )
        for fixture in fixtures(method_name)
    ]
    twelve = probe(method_name)
    batch, method = twelve.batch, twelve.method
    try:
        expected = trainer(batch, whole(batch), method)
    except Exception:  # What it raises is said above; nothing is left to compare with.
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
    shuffled, padded = batch.take(order), _pad(batch, 3)
    zeros = expected.gradient.new_zeros(len(batch.mask), 3)
    others = {
        "the same in another order": (shuffled, expected.gradient[order]),
        "the same with garbage as padding": (
            padded,
            torch.cat([expected.gradient, zeros], dim=1),
        ),
    }
    for name, (changed, gradient) in others.items():
        run = partial(trainer, changed, whole(changed), method)
        checks.append(_check(name, run, Update(expected.loss, gradient)))
    return checks


def _check(name: str, run: Callable[[], Update], expected: Update) -> Check:
    try:
        found = run()
    except Exception as error:  # Whatever a trainer raises is its verdict.
        return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0][:120])
    if found.gradient.shape != expected.gradient.shape:
        shapes = tuple(found.gradient.shape), tuple(expected.gradient.shape)
        return Check(name, False, f"gradient of shape {shapes[0]}, expected {shapes[1]}")
    scale = max(float(expected.gradient.abs().max()), 1e-3)
    gradient = float((found.gradient.double() - expected.gradient).abs().max()) / scale
    loss = abs(found.loss - expected.loss) / max(abs(expected.loss), 1.0)
    holds = gradient <= TOLERANCE and loss <= TOLERANCE
    return Check(name, holds, f"gradient {gradient:.0e}, loss {loss:.0e}")


def _pad(batch: MiniBatch, columns: int) -> MiniBatch:
    """Return a batch with columns outside the responses that hold anything but padding."""
    fields = {}
    for name in batch.__dataclass_fields__:
        value = getattr(batch, name)
        if name == "advantages":
            fields[name] = value
        elif name == "mask":
            fields[name] = torch.cat([value, value.new_zeros(len(value), columns)], dim=1)
        else:
            garbage = torch.full((len(value), columns), 7.0 if "entropies" in name else -9.0)
            fields[name] = torch.cat([value, garbage.to(value)], dim=1)
    return MiniBatch(**fields)


# Conventions --------------------------------------------------------------------------------------


def conventions(trainer: Trainer, method_name: str) -> dict[str, str]:
    """Return which conventions a trainer follows, by the question.

    Args:
        trainer: under test.
        method_name: whose selection it is meant to have.
    """
    method = METHODS[method_name]
    batch, layout = probe(method_name).batch, probe_layout()
    found = {
        "threshold over": NOT_APPLICABLE,
        "probabilities and entropies of": NOT_APPLICABLE,
        "compares by": NOT_APPLICABLE,
        "without a candidate": NOT_APPLICABLE,
    }
    keep = _kept(trainer(batch, layout, method))
    if method.selection != "keep_all":
        explained = [e for e, mask in _explanations(batch, layout, method) if mask == keep.tolist()]
        everything = bool(keep.eq(batch.mask).all())
        neither = "no selection" if everything else UNKNOWN
        scope, policy = explained[0] if explained else (neither, neither)
        found |= {"threshold over": scope, "probabilities and entropies of": policy}
    if method.selection == "silence_spurious":
        found["compares by"] = _comparisons(trainer, method_name)
        found["without a candidate"] = _without_candidate(trainer, method)
    found["divisor"] = _divisor(trainer(batch, layout, method), keep, batch, layout, method)
    return found


def _kept(update: Update) -> Tensor:
    return update.gradient != 0


def _scopes(layout: Layout) -> Iterator[tuple[str, Scope]]:
    """Yield the scopes that trainers are known to use, the paper's first."""
    ranks = [[row for micro in rank for row in micro] for rank in layout]
    steps = max(len(rank) for rank in layout)
    yield "the mini-batch", [[row for rank in ranks for row in rank]]
    yield "a rank", ranks
    yield "a micro-batch", [micro for rank in layout for micro in rank]
    together = [[row for rank in layout for row in rank[i]] for i in range(steps)]
    yield "a micro-batch of all ranks together", together


def _explanations(
    batch: MiniBatch, layout: Layout, method: Method
) -> Iterator[tuple[tuple[str, str], Mask]]:
    """Yield (scope, policy) and the tokens that would then be kept."""
    policies = {"the behaviour policy": "old_", "the current policy": ""}
    for (scope, parts), (policy, prefix) in product(_scopes(layout), policies.items()):
        keep: Mask = [[False] * batch.mask.shape[1] for _ in batch.mask]
        for rows in parts:
            part = batch.take(torch.tensor(rows))
            tables = {name: getattr(part, name).tolist() for name in part.__dataclass_fields__}
            for row, own in zip(rows, select(method, tables, prefix)[0], strict=True):
                keep[row] = own
        yield (scope, policy), keep


def _comparisons(trainer: Trainer, method_name: str) -> str:
    """Return whether S2T's two comparisons are strict, on tokens that lie on the boundary."""
    (fixture,) = [f for f in fixtures(method_name) if f.name == BOUNDARY]
    batch, method = fixture.batch, at_boundary(method_name)
    keep = _kept(trainer(batch, whole(batch), method)).tolist()
    for tau, threshold in product((False, True), repeat=2):
        expected, _ = silenced_by_s2t(
            batch.old_logps.tolist(),
            batch.old_entropies.tolist(),
            batch.advantages.tolist(),
            batch.mask.tolist(),
            method.selection_args,
            tau_inclusive=tau,
            threshold_inclusive=threshold,
        )
        if expected == keep:
            return f"p {'<=' if tau else '<'} tau_p, H {'<=' if threshold else '<'} threshold"
    return UNKNOWN


def _without_candidate(trainer: Trainer, method: Method) -> str:
    tables = random_tables(300, rare=0.0)
    batch = mini_batch(tables)
    try:
        keep = _kept(trainer(batch, whole(batch), method))
    except Exception as error:  # Some trainers take a quantile of nothing.
        return f"raises {type(error).__name__}"
    if bool(keep.eq(batch.mask).all()):
        return "nothing is silenced"
    return "everything is silenced" if not keep.any() else "some tokens are silenced"


def _divisor(update: Update, keep: Tensor, batch: MiniBatch, layout: Layout, method: Method) -> str:
    """Return what each token's share of the loss is divided by."""
    ratio = torch.exp(batch.logps - batch.old_logps)
    pull = method.kl_coefficient * (1 - torch.exp(batch.ref_logps - batch.logps))
    found = -(ratio * batch.advantages.unsqueeze(1) - pull)[keep] / update.gradient[keep]
    for name, divisor in _divisors(keep, batch.mask, layout):
        if torch.allclose(found.double(), divisor[keep], rtol=1e-4):
            return name
    return UNKNOWN


def _divisors(keep: Tensor, mask: Tensor, layout: Layout) -> Iterator[tuple[str, Tensor]]:
    """Yield the known divisors, (B, T) each; means over parts multiply by the number of parts."""
    ones = torch.ones_like(mask, dtype=torch.double)
    ranks = len(layout)
    place = {
        row: (r, m) for r, rank in enumerate(layout) for m, rows in enumerate(rank) for row in rows
    }
    for what, counted in (("kept tokens", keep), ("all tokens", mask)):
        for scope, parts in _scopes(layout):
            divisor = torch.zeros_like(ones)
            for rows in parts:
                divisor[rows] = float(counted[rows].sum())
            if scope == "a rank":
                divisor *= ranks
            elif scope == "a micro-batch":
                micro = [len(layout[place[row][0]]) for row in range(len(mask))]
                divisor *= torch.tensor(micro).unsqueeze(1) * ranks
            elif scope != "the mini-batch":
                divisor *= len(parts)
            suffix = "" if scope == "the mini-batch" else ", then the mean over these"
            yield f"{what} of {scope}{suffix}", divisor
        lengths = counted.sum(dim=1, keepdim=True).double()
        yield f"{what} of each response, then the mean over responses", lengths * len(mask) * ones
        per_micro = [
            len(layout[r][m]) * len(layout[r]) * ranks
            for r, m in (place[row] for row in range(len(mask)))
        ]
        scaled = lengths * torch.tensor(per_micro).unsqueeze(1) * ones
        yield f"{what} of each response, then the mean over micro-batches' means", scaled
