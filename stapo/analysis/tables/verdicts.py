"""Verdicts on the claims of the paper."""

from collections import Counter
from collections.abc import Iterator

from stapo.analysis.against_paper import changed, is_papers
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.claims import HOLDS, OPEN, REFUTED, Decided, paper_claims, verdicts
from stapo.analysis.table import Column, Table
from stapo.exhibits import Exhibit
from stapo.reference import confidence
from stapo.study import Study

EXHIBIT = Exhibit(order=10, title="The paper's claims")


def _reason(row: Decided) -> str:
    """Return the reason of a verdict, and what a reader has to grant."""
    return row.reason + (f" Rests on: {'; '.join(row.rests_on)}." if row.rests_on else "")


COLUMNS: list[Column[Decided]] = [
    Column("Claim", lambda row: row.claim.text, text=True),
    Column("Verdict", lambda row: row.verdict, text=True),
    Column("Measured", lambda row: "; ".join(map(str, row.measured)), text=True),
    Column("Reason, and what it rests on", _reason, text=True),
    Column("Size", lambda row: row.where, text=True),
    Column("Revision", lambda row: row.claim.revision, text=True),
    Column("Source of the claim", lambda row: confidence(row.claim.confidence), text=True),
    Column("Training seeds", lambda row: row.seeds),
]
RULE = (
    "Each claim is decided by a rule from measured intervals (95 %): it holds if all intervals agree "
    "with it, does not hold if one contradicts it, and cannot be decided otherwise. Rules and limits: "
    "stapo/reference/claims.yaml."
)


def make(artefacts: Artefacts) -> Table:
    """Return the table of verdicts, a row for each claim and size."""
    rows = verdicts(artefacts)
    count = Counter(row.verdict for row in rows)
    counts = ", ".join(f"{verdict} {count[verdict]}" for verdict in (HOLDS, REFUTED, OPEN))
    unmeasured = sum(not row.measured for row in rows)
    caption = (
        f"{len(rows)} verdicts on claims of the paper, by revision and size: {counts}. For {unmeasured} of "
        "the last ones, the study does not measure what the claim is about."
    )
    return Table(
        columns=COLUMNS, rows=rows, caption=caption, notes=[RULE, *_notes(artefacts.study)]
    )


def _notes(study: Study) -> Iterator[str]:
    yield "Each claim is decided on its own: of many verdicts, some are wrong by chance."
    for name in dict.fromkeys(claim.method for claim in paper_claims()):
        if name in study.run.methods and (changes := changed(study, name)):
            yield f"{study.method(name).title} is not as in the paper: {changes}."
    if others := [size for size in study.run.sizes if not is_papers(study, size)]:
        yield (
            f"{', '.join(others)}: not a model of the paper. Verdicts are about this study's models and say "
            "little about the paper's."
        )
