"""Recognition of a trainer's threshold, of the policy whose statistics it reads, and of its divisor.

The tokens that a trainer keeps are those with a gradient, since every kept token of the probe has one. They
are compared with those that known conventions keep; if several match, all are reported.
"""

from itertools import product

import torch
from torch import Tensor

from stapo.conformance.batches import PROBE_LAYOUT, MiniBatch, Trainer, Update, probe
from stapo.methods import METHODS, Method
from stapo.objective import SELECTIONS

SCOPE, POLICY, DIVISOR = "threshold over", "probabilities and entropies of", "divisor"
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
    found = {SCOPE: NOT_APPLICABLE, POLICY: NOT_APPLICABLE}
    if method.reads != "none":
        same = [
            (scope, policy)
            for scope, policy in product(SCOPES, POLICIES)
            if _kept(batch, method, scope, policy).equal(keep)
        ]
        neither = "no selection" if keep.equal(batch.mask) else UNKNOWN
        found[SCOPE] = " or ".join(dict.fromkeys(scope for scope, _ in same)) or neither
        found[POLICY] = " or ".join(dict.fromkeys(policy for _, policy in same)) or neither
    return {**found, DIVISOR: _divisor(update, keep, batch, method)}


def _kept(batch: MiniBatch, method: Method, scope: str, policy: str) -> Tensor:
    """Return the (B, T) tokens of the probe that a convention keeps."""
    keep, prefix = torch.zeros_like(batch.mask), POLICIES[policy]
    for rows in SCOPES[scope]:
        part = batch.take(torch.tensor(rows))
        logps, entropies = (getattr(part, prefix + name) for name in ("logps", "entropies"))
        tables = logps, entropies, part.advantages, part.mask
        keep[rows] = SELECTIONS[method.selection](*tables, **method.selection_args)
    return keep


def _divisor(update: Update, keep: Tensor, batch: MiniBatch, method: Method) -> str:
    """Return the name of the divisor of each token's loss."""
    ratio = torch.exp(batch.logps - batch.old_logps)
    pull = method.kl_coefficient * (1 - torch.exp(batch.ref_logps - batch.logps))
    slope = ratio * batch.advantages.unsqueeze(1) - pull
    found = -(slope / update.gradient)[keep].double()
    same = [
        name
        for name, divisor in _divisors(keep, batch.mask).items()
        if torch.allclose(found, divisor.expand(keep.shape)[keep], rtol=1e-4)
    ]
    return " or ".join(same) or UNKNOWN


def _divisors(keep: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the divisors of known trainers on the probe, (B, 1) each, with the engine's mean over ranks."""
    means = torch.zeros(len(mask), 1, dtype=torch.double)
    for rank, rows in zip(PROBE_LAYOUT, RANKS, strict=True):
        means[rows] = float(len(rank) * len(PROBE_LAYOUT))
    found = {}
    counts = {"kept tokens": keep} | ({} if keep.equal(mask) else {"all tokens": mask})
    for what, counted in counts.items():
        of_response = counted.sum(dim=1, keepdim=True).double()
        of_micro_batch = torch.zeros_like(of_response)
        for rows in MICRO_BATCHES:
            of_micro_batch[rows] = of_response[rows].sum()
        found[f"{what} of the mini-batch"] = of_response.sum().expand(len(mask), 1)
        found[f"{what} of a micro-batch, then the mean over these"] = of_micro_batch * means
        found[f"{what} of each response, then the mean over responses"] = of_response * len(mask)
    return found
