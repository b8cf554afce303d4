"""Generation of the fixtures: batches from seeds, and the results of every method, computed by plain loops.

This module uses neither tensors nor `stapo.objective`. A (B, T) quantity is a list of B rows.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from math import log
from random import Random
from typing import Any

from stapo.conformance.batches import FIXTURES, TABLES
from stapo.conformance.reference import (
    Mask,
    Table,
    divisors,
    kept_by_entropy,
    silenced_by_s2t,
    token_weight,
)
from stapo.methods import CONFORMANCE_METHODS, METHODS, Method

AT_TAU_P, AT_THRESHOLD = "a probability equal to tau_p", "an entropy equal to the threshold"
BORDER_TAU_P = 0.25
"""tau_p for which exp(log(tau_p)) is exact, also in single precision; for 0.002 it is not."""
ABOUT = {
    "units": "log-probabilities and entropies in nats; every table (B, T) by rows; double precision",
    "old_": "of the policy that produced the responses: its probabilities and entropies select tokens",
    "ref_": "of the reference, for the KL term (k3 estimator) where kl_coefficient is not 0",
    "mask": "true on response tokens",
    "selection_args": "of the token selection; tau_p differs from the method's in some batches",
    "keep": "tokens that contribute to the loss",
    "threshold": "of the entropies, where S2T has a candidate, otherwise null",
    "divisor": "what a kept token's share of the loss is divided by",
    "loss": "minimised: minus the sum over kept tokens of (clipped surrogate - KL term) / divisor",
    "gradient": "derivative of the loss with respect to logps",
}


def select(
    method: Method,
    tables: Mapping[str, Any],
    policies: tuple[str, str] = ("old_", "old_"),
    *,
    tau_inclusive: bool = False,
    threshold_inclusive: bool = False,
) -> tuple[Mask, float | None]:
    """Return kept tokens and threshold of a method.

    Args:
        method: method with the selection.
        tables: batch as nested lists.
        policies: prefixes of the log-probs and of the entropies for the selection.
        tau_inclusive: as for `silenced_by_s2t`.
        threshold_inclusive: as for `silenced_by_s2t`.
    """
    logps, entropies = tables[f"{policies[0]}logps"], tables[f"{policies[1]}entropies"]
    if method.selection == "silence_spurious":
        return silenced_by_s2t(
            logps,
            entropies,
            tables["advantages"],
            tables["mask"],
            method.selection_args,
            tau_inclusive=tau_inclusive,
            threshold_inclusive=threshold_inclusive,
        )
    if method.selection == "keep_high_entropy":
        fraction = float(method.selection_args["fraction"])
        return kept_by_entropy(entropies, tables["mask"], fraction), None
    return [list(row) for row in tables["mask"]], None


def expect(name: str, method_name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expected results of one method on one batch."""
    method = METHODS[method_name]
    if name in (AT_TAU_P, AT_THRESHOLD):
        method = at_border(method)
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


def at_border(method: Method) -> Method:
    """Return a method with a tau_p that a probability can equal exactly."""
    if "tau_p" not in method.selection_args:
        return method
    return replace(method, selection_args={**method.selection_args, "tau_p": BORDER_TAU_P})


def random_tables(seed: int, size: int = 6, width: int = 8, rare: float = 0.3) -> dict[str, Any]:
    """Return a batch with a share of rare tokens, and with all ratios inside the clip."""
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


def with_candidates(seed: int, count: int) -> dict[str, Any]:
    """Return a batch with `count` candidates of S2T, all in its first row of width 8."""
    tables = random_tables(seed, rare=0.0)
    for t in range(count):
        for name in ("old_logps", "logps"):
            tables[name][0][t] = log(0.001 + 0.0001 * t)
    return tables


def _crossing() -> dict[str, Any]:
    """Return a batch in which probabilities have crossed tau_p = 0.002 in both directions."""
    tables = with_candidates(21, 3)
    for t, (old, new) in enumerate([(0.0018, 0.0021), (0.0019, 0.0022), (0.0021, 0.0018)], start=3):
        tables["old_logps"][0][t], tables["logps"][0][t] = log(old), log(new)
    tables["old_entropies"][0][:6] = [0.5, 0.8, 1.1, 0.3, 1.4, 0.2]
    tables["entropies"][0][:6] = [1.2, 0.4, 0.7, 0.9, 0.1, 1.0]
    return tables


def _border(probabilities: list[float], entropies: list[float], low: int) -> dict[str, Any]:
    """Return a batch of 41 tokens and equal policies, whose first row starts with some rare tokens.

    Args:
        probabilities: probabilities of the rare tokens; those of all others are above BORDER_TAU_P.
        entropies: entropies of the rare tokens.
        low: number of other tokens with an entropy below 0.3; the rest has entropies above 0.5.
    """
    tables = random_tables(40)
    logps = [[log(0.4 + 0.05 * t) for t in range(8)] for _ in range(6)]
    logps[0][: len(probabilities)] = [log(p) for p in probabilities]
    tables["mask"] = [[t < length for t in range(8)] for length in (8, 7, 7, 7, 6, 6)]
    inside = [(b, t) for b, row in enumerate(tables["mask"]) for t, true in enumerate(row) if true]
    table = [[1.0] * 8 for _ in range(6)]
    for index, (b, t) in enumerate(inside[len(entropies) :]):
        table[b][t] = 0.005 + 0.01 * index if index < low else 0.6 + 0.01 * index
    table[0][: len(entropies)] = entropies
    for prefix in ("", "old_"):
        tables[f"{prefix}logps"] = [list(row) for row in logps]
        tables[f"{prefix}entropies"] = [list(row) for row in table]
    return tables


def _borders() -> dict[str, dict[str, Any]]:
    """Return one batch per comparison of S2T, in which only that comparison has equal operands."""
    return {
        # With three and with four candidates, no entropy equals the 0.75 quantile of the entropies.
        AT_TAU_P: _border([0.1, 0.12, 0.14, BORDER_TAU_P], [0.2, 0.1, 0.5, 0.05], low=0),
        # 0.4 is the 0.75 quantile of the candidates (the fourth of five) and the 0.8 quantile of all tokens
        # (the 33rd of 41).
        AT_THRESHOLD: _border([0.1, 0.12, 0.14, 0.16, 0.18], [0.2, 0.1, 0.5, 0.4, 0.3], low=29),
    }


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
        name = f"{count} candidate" + "s" * (count != 1)
        batches[name] = with_candidates(10 + count, count)
    batches["probabilities that cross tau_p"] = _crossing()
    batches |= _borders()
    parameters = ("clip_low", "clip_high", "aggregation", "selection", "kl_coefficient")
    return {
        "about": ABOUT,
        "methods": {
            name: {key: getattr(METHODS[name], key) for key in parameters}
            for name in CONFORMANCE_METHODS
        },
        "batches": batches,
        "expected": [
            expect(name, method, tables)
            for name, tables in batches.items()
            for method in CONFORMANCE_METHODS
        ],
    }


def write_fixtures() -> None:
    """Write `fixtures.json`."""
    FIXTURES.write_text(json.dumps(build()) + "\n")
