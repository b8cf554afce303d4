"""A verdict on each claim of the paper: holds, does not hold, or cannot be decided."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Any, Literal

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.quantities import QUANTITIES, Measured, UnmeasuredError
from stapo.analysis.token_quantities import TOKEN_QUANTITIES
from stapo.evaluation.statistics import Interval
from stapo.reference import claims

Verdict = Literal["holds", "does not hold", "cannot be decided"]
HOLDS: Verdict = "holds"
REFUTED: Verdict = "does not hold"
OPEN: Verdict = "cannot be decided"
ALL_QUANTITIES: dict[str, Callable[..., Sequence[Measured]]] = {**QUANTITIES, **TOKEN_QUANTITIES}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of one revision of the paper."""

    id: str
    text: str
    revision: str
    method: str
    """Method of the revision that it is about."""
    confidence: str
    """How sure it is that the paper says so: a letter of `stapo.reference`."""
    about: Literal["method", "tokens"]
    quantity: str
    """Name in `ALL_QUANTITIES`."""
    arguments: dict[str, Any]
    rule: str
    """Name in `RULES`."""
    limits: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The verdict on a claim, at one size."""

    claim: Claim
    where: str
    """Size, or what else it was measured at; empty if it was not."""
    measured: Sequence[Measured]
    seeds: int
    verdict: Verdict
    reason: str


def paper_claims() -> list[Claim]:
    """Return the claims of `claims.yaml`, one for each revision."""
    found = []
    for one in claims():
        ((rule, limits),) = one["rule"].items()
        arguments = {key: value for key, value in one["quantity"].items() if key != "name"}
        found += [
            Claim(
                id=one["id"],
                text=one["text"],
                revision=revision,
                method=method,
                confidence=one["confidence"],
                about=one["about"],
                quantity=one["quantity"]["name"],
                arguments=arguments,
                rule=rule,
                limits=tuple(limits) if isinstance(limits, list) else (limits,),
            )
            for revision, method in one["revisions"].items()
        ]
    return found


def above(found: Interval, limit: float) -> Verdict:
    """Decide that a quantity is above a limit."""
    return HOLDS if found.low > limit else REFUTED if found.high <= limit else OPEN


def below(found: Interval, limit: float) -> Verdict:
    """Decide that a quantity is below a limit."""
    return HOLDS if found.high < limit else REFUTED if found.low >= limit else OPEN


def within(found: Interval, low: float, high: float) -> Verdict:
    """Decide that a quantity is between two limits."""
    if low <= found.low and found.high <= high:
        return HOLDS
    return REFUTED if found.low > high or found.high < low else OPEN


def equals(found: Interval, stated: float) -> Verdict:
    """Decide that a quantity is what the paper states: a wide interval that also contains 0 says nothing."""
    if not found.low <= stated <= found.high:
        return REFUTED
    return OPEN if found.low <= 0 <= found.high else HOLDS


RULES: dict[str, tuple[Callable[..., Verdict], str]] = {
    "above": (above, "above {0:g}"),
    "below": (below, "below {0:g}"),
    "within": (within, "between {0:g} and {1:g}"),
    "equals": (equals, "equal to {0:g}"),
}
"""Name of a rule -> function of an interval and the limits, and what it claims."""


def decide(claim: Claim, measured: Sequence[Measured], seeds: int) -> tuple[Verdict, str]:
    """Return the verdict on a claim, and the reason in one sentence.

    Args:
        claim: the claim.
        measured: what was measured at one place; all of it must fulfil the claim's rule.
        seeds: number of training seeds.
    """
    if claim.about == "method" and seeds == 1:
        return OPEN, "One training seed decides nothing about a method."
    rule, text = RULES[claim.rule]
    wanted = text.format(*claim.limits)
    if without := [one for one in measured if not isfinite(one.found.low)]:
        return OPEN, f"There is no interval of the {without[0].what}."
    found = [(one, rule(one.found, *claim.limits)) for one in measured]
    several = len(found) > 1
    for one, verdict in found:
        if verdict == REFUTED:
            which = f" of the {one.what}" if several else ""
            return REFUTED, f"The interval{which} excludes that it is {wanted}."
    for one, verdict in found:
        if verdict == OPEN:
            which = f" of the {one.what}" if several else ""
            return OPEN, f"The interval{which} is too wide to decide whether it is {wanted}."
    which = f"All {len(found)} intervals are" if several else "The interval is"
    return HOLDS, f"{which} {_where(claim)}."


def _where(claim: Claim) -> str:
    if claim.rule == "equals":
        return f"around the paper's {claim.limits[0]:g} and excludes 0"
    return RULES[claim.rule][1].format(*claim.limits)


def verdicts(artefacts: Artefacts) -> list[Decided]:
    """Return the verdicts on all claims: a row for each claim and size, one for a claim without measurement.

    Raises:
        DamagedFileError: files of the study are missing, damaged or incomplete.
        StaleScoreError: as for `read_scores`.
    """
    return [row for claim in paper_claims() for row in _verdicts(artefacts, claim)]


def _verdicts(artefacts: Artefacts, claim: Claim) -> Iterator[Decided]:
    seeds = len(artefacts.study.run.seeds)
    try:
        measured = ALL_QUANTITIES[claim.quantity](artefacts, claim.method, **claim.arguments)
    except UnmeasuredError as error:
        reason = f"Not measured: {error}."
        yield Decided(claim=claim, where="", measured=(), seeds=seeds, verdict=OPEN, reason=reason)
        return
    order = [*dict.fromkeys(one.where for one in measured)]
    for where, group in groupby(
        sorted(measured, key=lambda one: order.index(one.where)), lambda one: one.where
    ):
        found = [*group]
        verdict, reason = decide(claim, found, seeds)
        if seeds == 1 and verdict != OPEN:
            reason += " This is about the tokens of one training, not about its method."
        yield Decided(
            claim=claim, where=where, measured=found, seeds=seeds, verdict=verdict, reason=reason
        )
