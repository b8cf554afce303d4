"""Recognition of the conventions of a trainer: threshold, policy, comparisons, divisor.

The tokens that a trainer keeps are those with a gradient, since every kept token of the probe has one. They
are compared with those that each convention of a known trainer keeps; if several match, all are reported.
"""

from collections.abc import Iterator
from itertools import product
from math import inf, nextafter
from typing import Any

import torch
from torch import Tensor

from stapo.conformance.batches import (
    PROBE_LAYOUT,
    Fixture,
    MiniBatch,
    Trainer,
    Update,
    fixtures,
    probe,
    whole,
)
from stapo.methods import METHODS, Method
from stapo.objective import SELECTIONS, spurious_candidates, spurious_threshold

UNKNOWN, NOT_APPLICABLE = "no known convention", "not applicable"
POLICIES = {"the behaviour policy": "old_", "the current policy": ""}

RANKS = [[row for micro in rank for row in micro] for rank in PROBE_LAYOUT]
MICRO_BATCHES = [micro for rank in PROBE_LAYOUT for micro in rank]
ROWS = [row for rank in RANKS for row in rank]
SCOPES = {
    "the mini-batch": [ROWS],
    "a rank": RANKS,
    "a micro-batch": MICRO_BATCHES,
    # TRL's, which gathers the entropies of a micro-batch.
    "a micro-batch of all ranks together": [
        [row for micro in step for row in micro] for step in zip(*PROBE_LAYOUT, strict=True)
    ],
    "a response": [[row] for row in ROWS],  # prime-rl's.
}
"""Name -> parts of the probe with a threshold each, starting with the paper's."""


def conventions(trainer: Trainer, method_name: str) -> dict[str, str]:
    """Return the conventions of a trainer: question -> answer.

    Args:
        trainer: trainer under test.
        method_name: method that it is meant to implement.
    """
    batch, method = probe(method_name), METHODS[method_name]
    update = trainer(batch, PROBE_LAYOUT, method)
    keep = update.gradient != 0
    scope = policy = comparisons = candidates = NOT_APPLICABLE
    inclusive = False
    if method.spec.silenced is not None:
        given = {fixture.name: fixture for fixture in fixtures(method_name)}
        tau_p = _comparison(trainer, given["a probability equal to tau_p"], "tau_p")
        threshold = _comparison(trainer, given["an entropy equal to the threshold"], "threshold")
        comparisons = f"p {tau_p} tau_p, H {threshold} threshold"
        inclusive = threshold == "<="
        candidates = _without_candidate(trainer, given["0 candidates"])
    if method.reads != "none":
        known = _explanations(batch, method, inclusive)
        explained = [name for name, kept in known if kept.equal(keep)]
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


def _select(
    method: Method,
    batch: MiniBatch,
    policies: tuple[str, str] = ("old_", "old_"),
    inclusive: str = "",
) -> Tensor:
    """Return the (B, T) tokens that a method keeps with the log-probs and entropies of some policies.

    S2T is strict; `inclusive`, `tau_p` or `threshold`, also silences at equality, as ours never does.
    """
    logps, entropies = (
        getattr(batch, policy + name)
        for policy, name in zip(policies, ("logps", "entropies"), strict=True)
    )
    args: dict[str, Any] = dict(method.selection_args)
    if inclusive == "tau_p":
        args["tau_p"] = nextafter(args["tau_p"], inf)
    tables = logps, entropies, batch.advantages, batch.mask
    kept: Tensor = SELECTIONS[method.selection](*tables, **args)
    if inclusive == "threshold":
        candidates = spurious_candidates(logps, batch.advantages, batch.mask, args["tau_p"])
        rest = args["quantile"], args["scope"]
        threshold = spurious_threshold(entropies, candidates, batch.mask, *rest)
        if threshold is not None:
            kept = kept & ~(candidates & (entropies == threshold))
    return kept


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
    for (scope, parts), (policy, prefixes) in product(SCOPES.items(), policies.items()):
        keep = torch.zeros_like(batch.mask)
        for rows in parts:
            part = batch.take(torch.tensor(rows))
            keep[rows] = _select(method, part, prefixes, "threshold" if inclusive else "")
        yield (scope, policy), keep


def _comparison(trainer: Trainer, fixture: Fixture, border: str) -> str:
    """Return < or <=, the comparison that a trainer uses for a token exactly on a border."""
    batch, method = fixture.batch, fixture.method
    keep = trainer(batch, whole(batch), method).gradient != 0
    signs = {"<": "", "<=": border}
    same = (s for s, at in signs.items() if _select(method, batch, inclusive=at).equal(keep))
    return next(same, "?")


def _without_candidate(trainer: Trainer, fixture: Fixture) -> str:
    batch = fixture.batch
    try:
        gradient = trainer(batch, whole(batch), fixture.method).gradient
    except Exception as error:  # Some trainers compute a quantile of no values.
        return f"raises {type(error).__name__}"
    if not gradient.isfinite().all():
        return "the gradient is not finite"
    if (gradient != 0).equal(batch.mask):
        return "nothing is silenced"
    return "some tokens are silenced" if gradient.any() else "everything is silenced"


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
    size = len(mask)
    # Of each row: responses of its micro-batch, and the number by which means of micro-batches are averaged.
    together, averaged = (torch.zeros(size, 1, dtype=torch.double) for _ in range(2))
    for rank in PROBE_LAYOUT:
        for rows in rank:
            together[rows], averaged[rows] = float(len(rows)), float(len(rank) * len(PROBE_LAYOUT))
    counts = {"kept tokens": keep}
    if not keep.equal(mask):
        counts["all tokens"] = mask
    for what, counted in counts.items():
        of_response = counted.sum(dim=1, keepdim=True).double()
        of_micro_batch = torch.zeros_like(of_response)
        for rows in MICRO_BATCHES:
            of_micro_batch[rows] = of_response[rows].sum()
        micro = f"{what} of a micro-batch, then the mean over these"
        response = f"{what} of each response, then the mean over"
        yield f"{what} of the mini-batch", of_response.sum().expand(size, 1)
        yield micro, of_micro_batch * averaged
        yield f"{micro} by their sequences", of_micro_batch * size / together
        yield f"{response} responses", of_response * size
        yield f"{response} micro-batches' means", of_response * together * averaged
