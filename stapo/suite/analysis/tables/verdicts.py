"""Verdicts on the claims of the paper: each holds, does not hold, or cannot be decided."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from stapo.core.methods import BASELINES
from stapo.suite.analysis.against_paper import changed, is_papers
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.formats import Column, Table
from stapo.suite.analysis.quantities import QUANTITIES, Measured, UnmeasuredError
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.exhibits import Exhibit
from stapo.suite.reference import CONFIDENCE, claims, paper
from stapo.suite.study import Study

EXHIBIT = Exhibit(order=10, title="The paper's claims")
Verdict = Literal["holds", "does not hold", "cannot be decided"]
HOLDS: Verdict = "holds"
REFUTED: Verdict = "does not hold"
OPEN: Verdict = "cannot be decided"
SAYS = {REFUTED: "excludes that it is", OPEN: "is too wide to decide whether it is"}
"""What an interval says of a claim that it does not confirm, the gravest first."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of one revision of the paper: an entry of `claims.yaml`, which explains the fields."""

    id: str
    text: str
    revision: str
    method: str
    confidence: str
    about: Literal["method", "tokens"]
    quantity: str
    arguments: dict[str, Any]
    rule: str
    limits: tuple[float, ...]
    is_limit_ours: bool
    against_baselines: bool


@dataclass(frozen=True)
class Decided:
    """The verdict on a claim, at one model."""

    claim: Claim
    where: str
    """Model, or what else it was measured at; empty if it was not."""
    measured: Sequence[Measured]
    seeds: int
    verdict: Verdict
    reason: str
    rests_on: list[str]
    """What a reader has to grant: our choices, settings that are inferred, what the study discloses."""


def paper_claims() -> list[Claim]:
    """Return the claims of `claims.yaml`, one for each revision."""
    parsed = []
    for entry in claims():
        ((rule, limits),) = entry["rule"].items()
        (_, quantity), *arguments = entry["quantity"].items()
        same = {key: entry[key] for key in ("id", "text", "confidence", "about")}
        same |= {"quantity": quantity, "arguments": dict(arguments), "rule": rule}
        same |= {"limits": tuple(limits) if isinstance(limits, list) else (limits,)}
        same |= {"is_limit_ours": "limit" in entry, "against_baselines": "against" in entry}
        parsed += [Claim(revision=r, method=m, **same) for r, m in entry["revisions"].items()]
    return parsed


def _within(interval: Interval, low: float, high: float) -> tuple[bool, bool]:
    inside = low <= interval.low and interval.high <= high
    return inside, interval.low > high or interval.high < low


RULES: dict[str, tuple[str, Callable[..., tuple[bool, bool]]]] = {
    "above": ("above {0:g}", lambda found, limit: (found.low > limit, found.high <= limit)),
    "below": ("below {0:g}", lambda found, limit: (found.high < limit, found.low >= limit)),
    "within": ("between {0:g} and {1:g}", _within),
    # Two one-sided tests at 2.5 %.
    "equals": ("within {1:g} of {0:g}", lambda found, a, d: _within(found, a - d, a + d)),
}
"""Name of a rule -> what it claims, and whether an interval confirms and contradicts that."""


def decide(claim: Claim, measured: Sequence[Measured], seeds: int) -> tuple[Verdict, str]:
    """Return the verdict on a claim, and the reason in one sentence.

    All that was measured at one place must fulfil the claim's rule.
    """
    if claim.about == "method" and seeds == 1:
        return OPEN, "One training seed decides nothing about a method."
    text, rule = RULES[claim.rule]
    wanted, several = text.format(*claim.limits), len(measured) > 1
    outcomes: dict[Verdict, str] = {}
    for measurement in measured:
        if not isfinite(measurement.estimate.low):
            return OPEN, f"There is no interval of the {measurement.what}."
        confirmed, contradicted = rule(measurement.estimate, *claim.limits)
        verdict = REFUTED if contradicted else HOLDS if confirmed else OPEN
        outcomes.setdefault(verdict, f" of the {measurement.what}" if several else "")
    for verdict, words in SAYS.items():
        if verdict in outcomes:
            return verdict, f"The interval{outcomes[verdict]} {words} {wanted}."
    which = f"All {len(measured)} intervals are" if several else "The interval is"
    return HOLDS, f"{which} {wanted}."


def verdicts(artefacts: Artefacts) -> list[Decided]:
    """Return the verdicts on all claims: a row for each claim and model, one for a claim not measured."""
    return [row for claim in paper_claims() for row in _verdicts(artefacts, claim)]


def _verdicts(artefacts: Artefacts, claim: Claim) -> Iterator[Decided]:
    seeds = len(artefacts.study.run.seeds)
    try:
        measured = [*QUANTITIES[claim.quantity](artefacts, claim.method, **claim.arguments)]
    except UnmeasuredError as error:
        yield Decided(claim, "", (), seeds, OPEN, f"Not measured: {error}.", [])
        return
    compared = {claim.method, *(BASELINES if claim.against_baselines else ())}
    inferred = [text for name, text in paper()["inferred"].items() if name in compared]
    rests_on = ["the limit is our choice"] * claim.is_limit_ours + inferred
    for where in dict.fromkeys(measurement.where for measurement in measured):
        measurements = [measurement for measurement in measured if measurement.where == where]
        verdict, reason = decide(claim, measurements, seeds)
        if seeds == 1 and verdict != OPEN:
            reason += " This is about the tokens of one training, not about its method."
        yield Decided(claim, where, measurements, seeds, verdict, reason, rests_on)


def _reason(row: Decided) -> str:
    return row.reason + (f" Rests on: {'; '.join(row.rests_on)}." if row.rests_on else "")


COLUMNS: list[Column[Decided]] = [
    Column("Claim", lambda row: row.claim.text, text=True),
    Column("Verdict", lambda row: row.verdict, text=True),
    Column("Measured", lambda row: "; ".join(map(str, row.measured)), text=True),
    Column("Reason, and what it rests on", _reason, text=True),
    Column("Model", lambda row: row.where, text=True),
    Column("Revision", lambda row: row.claim.revision, text=True),
    Column("Source of the claim", lambda row: CONFIDENCE[row.claim.confidence], text=True),
    Column("Training seeds", lambda row: row.seeds),
]
RULE = (
    "Each claim is decided by a rule from measured intervals (95 %): it holds if all intervals agree "
    "with it, does not hold if one contradicts it, and cannot be decided otherwise. Rules and limits: "
    "stapo/suite/reference/claims.yaml."
)


def make(artefacts: Artefacts) -> Table:
    """Return the table of verdicts, a row for each claim and model."""
    rows = verdicts(artefacts)
    count = Counter(row.verdict for row in rows)
    counts = ", ".join(f"{verdict} {count[verdict]}" for verdict in (HOLDS, REFUTED, OPEN))
    unmeasured = sum(not row.measured for row in rows)
    return Table(
        columns=COLUMNS,
        rows=rows,
        caption=f"{len(rows)} verdicts on claims of the paper, by revision and model: {counts}. For "
        f"{unmeasured} of the last ones, the study does not measure what the claim is about.",
        notes=[RULE, *_notes(artefacts.study)],
    )


def _notes(study: Study) -> Iterator[str]:
    yield "Each claim is decided on its own: of many verdicts, some are wrong by chance."
    for name in dict.fromkeys(claim.method for claim in paper_claims()):
        if name in study.run.methods and (changes := changed(study, name)):
            yield f"{study.method(name).title} is not as in the paper: {changes}."
    if others := [model for model in study.run.models if not is_papers(study, model)]:
        yield (
            f"{', '.join(others)}: not a model of the paper. Verdicts are about this study's models and say "
            "little about the paper's."
        )
