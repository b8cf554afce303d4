"""Recognition of the conventions of a trainer: threshold, policy, comparisons, divisor.

The tokens that a trainer keeps are those with a gradient, since every kept token of the probe has one. They
are compared with those that each convention of a known trainer keeps; if several match, all are reported.
"""

from collections.abc import Iterator
from itertools import product
from math import inf, nextafter

import torch
from torch import Tensor

from stapo.conformance.batches import (
    AT_TAU_P,
    AT_THRESHOLD,
    Layout,
    MiniBatch,
    Trainer,
    Update,
    fixtures,
    probe,
    probe_layout,
    whole,
)
from stapo.methods import METHODS, Method
from stapo.objective import SELECTIONS, spurious_candidates, spurious_threshold
from stapo.objective.selection import Scope

UNKNOWN, NOT_APPLICABLE = "no known convention", "not applicable"
POLICIES = {"the behaviour policy": "old_", "the current policy": ""}


def conventions(trainer: Trainer, method_name: str) -> dict[str, str]:
    """Return the conventions of a trainer: question -> answer.

    Args:
        trainer: trainer under test.
        method_name: method that it is meant to implement.
    """
    batch = probe(method_name)
    method = METHODS[method_name]
    update = trainer(batch, probe_layout(), method)
    keep = _kept(update)
    scope = policy = comparisons = candidates = NOT_APPLICABLE
    inclusive = False
    if method.spec.silenced is not None:
        tau_p = _comparison(trainer, method_name, AT_TAU_P)
        threshold = _comparison(trainer, method_name, AT_THRESHOLD)
        comparisons = f"p {tau_p} tau_p, H {threshold} threshold"
        inclusive = threshold == "<="
        candidates = _without_candidate(trainer, method_name)
    if method.reads != "none":
        explained = [
            name for name, mask in _explanations(batch, method, inclusive) if mask.equal(keep)
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


def _select(
    method: Method,
    batch: MiniBatch,
    prefixes: tuple[str, str] = ("old_", "old_"),
    *,
    tau_inclusive: bool = False,
    threshold_inclusive: bool = False,
) -> Tensor:
    """Return the (B, T) tokens that a method keeps with the log-probs and entropies of some policies.

    S2T is strict; `tau_inclusive` and `threshold_inclusive` also silence at equality, which ours never does.
    """
    logps: Tensor = getattr(batch, f"{prefixes[0]}logps")
    entropies: Tensor = getattr(batch, f"{prefixes[1]}entropies")
    args = method.selection_args
    if method.selection != "silence_spurious":
        tables = logps, entropies, batch.advantages, batch.mask
        kept: Tensor = SELECTIONS[method.selection](*tables, **args)
        return kept
    tau_p = float(args["tau_p"])
    tau_p = nextafter(tau_p, inf) if tau_inclusive else tau_p
    candidates = spurious_candidates(logps, batch.advantages, batch.mask, tau_p)
    scope: Scope = "all" if args["scope"] == "all" else "candidates"
    quantile = float(args["quantile"])
    threshold = spurious_threshold(entropies, candidates, batch.mask, quantile, scope)
    if threshold is None:
        return batch.mask
    low = entropies <= threshold if threshold_inclusive else entropies < threshold
    return batch.mask & ~(candidates & low)


def _scopes(layout: Layout) -> dict[str, list[list[int]]]:
    """Return name -> parts of the mini-batch with a threshold each, starting with the paper's."""
    ranks = [[row for micro in rank for row in micro] for rank in layout]
    rows = [row for rank in ranks for row in rank]
    return {
        "the mini-batch": [rows],
        "a rank": ranks,
        "a micro-batch": [micro for rank in layout for micro in rank],
        # TRL's, which gathers the entropies of a micro-batch.
        "a micro-batch of all ranks together": [
            [row for rank in layout for row in rank[index]] for index in range(len(layout[0]))
        ],
        "a response": [[row] for row in rows],  # prime-rl's.
    }


def _explanations(
    batch: MiniBatch, method: Method, inclusive: bool
) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield (scope, policy) and the tokens of the probe that this convention keeps.

    `inclusive` is whether an entropy equal to the threshold is silenced; such entropies are frequent in small
    scopes.
    """
    policies = {name: (prefix, prefix) for name, prefix in POLICIES.items()}
    if method.spec.silenced is not None:
        policies |= {
            f"{first} (probabilities), {second} (entropies)": (p, h)
            for (first, p), (second, h) in product(POLICIES.items(), repeat=2)
            if p != h
        }
    for scope, parts in _scopes(probe_layout()).items():
        for policy, prefixes in policies.items():
            keep = torch.zeros_like(batch.mask)
            for rows in parts:
                part = batch.take(torch.tensor(rows))
                keep[rows] = _select(method, part, prefixes, threshold_inclusive=inclusive)
            yield (scope, policy), keep


def _comparison(trainer: Trainer, method_name: str, border: str) -> str:
    """Return < or <=, the comparison that a trainer uses for a token exactly on the border."""
    (fixture,) = [f for f in fixtures(method_name) if f.name == border]
    batch, method = fixture.batch, fixture.method
    keep = _kept(trainer(batch, whole(batch), method))
    for sign, inclusive in (("<", False), ("<=", True)):
        expected = _select(
            method,
            batch,
            tau_inclusive=inclusive and border == AT_TAU_P,
            threshold_inclusive=inclusive and border == AT_THRESHOLD,
        )
        if expected.equal(keep):
            return sign
    return "?"


def _without_candidate(trainer: Trainer, method_name: str) -> str:
    (fixture,) = [f for f in fixtures(method_name) if f.name == "0 candidates"]
    batch = fixture.batch
    try:
        update = trainer(batch, whole(batch), fixture.method)
    except Exception as error:  # Some trainers compute a quantile of no values.
        return f"raises {type(error).__name__}"
    keep = _kept(update)
    if not update.gradient.isfinite().all():
        return "the gradient is not finite"
    if keep.equal(batch.mask):
        return "nothing is silenced"
    return "everything is silenced" if not keep.any() else "some tokens are silenced"


def _divisor(update: Update, keep: Tensor, batch: MiniBatch, method: Method) -> str:
    """Return the name of the divisor of each token's loss."""
    ratio = torch.exp(batch.logps - batch.old_logps)
    pull = method.kl_coefficient * (1 - torch.exp(batch.ref_logps - batch.logps))
    slope = ratio * batch.advantages.unsqueeze(1) - pull
    found = -(slope / update.gradient)[keep].double()
    known = [
        name
        for name, divisor in _divisors(keep, batch.mask)
        if torch.allclose(found, divisor.expand(keep.shape)[keep], rtol=1e-4)
    ]
    if known:
        return " or ".join(known)
    if found.numel() and torch.allclose(found, found.mean(), rtol=1e-4):
        tokens = f"{int(keep.sum())} tokens are kept of {int(batch.mask.sum())}"
        return f"{float(found.mean()):g} everywhere ({tokens})"
    return UNKNOWN


def _divisors(keep: Tensor, mask: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the divisors of known trainers on the probe, (B, 1) each, with the engine's mean over ranks."""
    layout, size = probe_layout(), len(mask)
    parts = [rows for rank in layout for rows in rank]
    # Of each row: responses of its micro-batch, and the number by which means of micro-batches are averaged.
    together, averaged = (torch.zeros(size, 1, dtype=torch.double) for _ in range(2))
    for rank in layout:
        for rows in rank:
            together[rows], averaged[rows] = float(len(rows)), float(len(rank) * len(layout))
    counts = (
        {"kept tokens": keep} if keep.equal(mask) else {"kept tokens": keep, "all tokens": mask}
    )
    for what, counted in counts.items():
        of_response = counted.sum(dim=1, keepdim=True).double()
        of_micro_batch = torch.zeros_like(of_response)
        for rows in parts:
            of_micro_batch[rows] = of_response[rows].sum()
        yield f"{what} of the mini-batch", of_response.sum().expand(size, 1)
        name = f"{what} of a micro-batch, then the mean over these"
        yield name, of_micro_batch * averaged
        yield f"{name} by their sequences", of_micro_batch * size / together
        name = f"{what} of each response, then the mean over"
        yield f"{name} responses", of_response * size
        yield f"{name} micro-batches' means", of_response * together * averaged
