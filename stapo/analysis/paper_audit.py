"""Audit of the paper's numbers: averages and headlines recomputed, with published remarks on them."""

from dataclasses import dataclass

from stapo.analysis.comparison import headline
from stapo.analysis.rows import Headline
from stapo.methods import BASELINES, METHODS
from stapo.reference import confidence, paper, stated_averages

ROUNDING = 0.0101
"""Tolerance: components and averages are each rounded to 0.01, so they may differ by 0.01."""


@dataclass(frozen=True)
class AuditedRow:
    """One row of the paper's table, in percent."""

    decoding: str
    size: str
    method: str
    title: str
    stated: float
    recomputed: float

    @property
    def difference(self) -> float:
        """Stated average minus the plain mean of the row's benchmarks."""
        return self.stated - self.recomputed

    @property
    def follows(self) -> bool:
        """Whether the stated average equals the mean of its components, up to rounding."""
        return abs(self.difference) <= ROUNDING


@dataclass(frozen=True)
class AuditedHeadline:
    """The headline of one decoding: the mean relative gain over the sizes, in percent."""

    decoding: str
    revision: str
    confidence: str
    title: str
    """Title of the method with this gain."""
    stated: float
    gains: dict[str, float]
    """Size -> stated gain; empty if only the mean is stated."""
    from_stated: float | None
    """Headline computed from the stated averages; None if the table of the revision is not known."""
    from_recomputed: float | None
    """Headline computed from the recomputed averages; None if the table of the revision is not known."""


def decodings() -> list[str]:
    """Return the decodings of the paper's table."""
    return [name for name in paper()["table"] if name not in ("revision", "confidence")]


def decoding_title(name: str) -> str:
    """Return a decoding of the paper's table as people say it, such as `T = 1.0, top-p = 1.0`."""
    title: str = paper()["decodings"][name]
    return title


def audit_rows() -> list[AuditedRow]:
    """Return each row of the paper's table with its recomputed average."""
    return [
        AuditedRow(
            name, size, method, METHODS[method].title, row[-1], sum(row[:-1]) / len(row[:-1])
        )
        for name in decodings()
        for size, methods in paper()["table"][name].items()
        for method, row in methods.items()
    ]


def stated_headline(revision: str, decoding: str) -> Headline | None:
    """Return the headline of a revision computed from its stated averages; None if they are not known."""
    if revision != paper()["table"]["revision"]:
        return None
    method = paper()["headline"][revision]["method"]
    return headline(stated_averages(decoding), method, BASELINES)


def audit_headlines() -> list[AuditedHeadline]:
    """Return the paper's headlines, recomputed if the table of the revision is known."""
    recomputed: dict[str, dict[str, dict[str, float]]] = {}
    for row in audit_rows():
        sizes = recomputed.setdefault(row.decoding, {})
        sizes.setdefault(row.size, {})[row.method] = row.recomputed
    found = []
    for revision, stated in paper()["headline"].items():
        title = METHODS[stated["method"]].title
        for name in decodings():
            first = stated_headline(revision, name)
            second = headline(recomputed[name], stated["method"], BASELINES) if first else None
            means = [one.mean if one else None for one in (first, second)]
            gains = stated.get("gains", {}).get(name, {})
            mean = stated["means"][name]
            found.append(
                AuditedHeadline(name, revision, stated["confidence"], title, mean, gains, *means)
            )
    return found


def headline_line(found: AuditedHeadline) -> str:
    """Return a headline with its recomputed values as one line."""
    sizes = ", ".join(f"{size} {gain:.2f} %" for size, gain in found.gains.items())
    line = (
        f"{found.title}, {found.revision}, {decoding_title(found.decoding)}: stated {found.stated:.2f} %"
        + (f" ({sizes})" if sizes else "")
        + f" [{confidence(found.confidence)}]"
    )
    if found.from_stated is None or found.from_recomputed is None:
        return f"{line}; the table of this revision is not known, so it cannot be recomputed"
    return (
        f"{line}; from the stated averages {found.from_stated:.2f} %, from the averages of the components "
        f"{found.from_recomputed:.2f} %"
    )


def audit_text() -> str:
    """Return the number of stated averages that equal the mean of their components, and list the others."""
    rows, table = audit_rows(), paper()["table"]
    odd = [
        f"{row.title} {row.size} at {decoding_title(row.decoding)} (stated {row.stated:.2f}, components "
        f"{row.recomputed:.2f})"
        for row in rows
        if not row.follows
    ]
    return (
        f"Table of {table['revision']} [{confidence(table['confidence'])}]: "
        f"{len(rows) - len(odd)} of {len(rows)} stated averages are those of their components, to rounding. "
        f"Not so: {', '.join(odd) or 'none'}."
    )


def claim_lines() -> list[str]:
    """Return the claims of each revision about its ablations and sensitivities."""
    return [said(one) for one in paper()["claims"]]


def note_lines() -> list[str]:
    """Return notes on inconsistencies and omissions of the paper."""
    return [said(one) for one in paper()["notes"]]


def independent_lines() -> list[str]:
    """Return results of STAPO trainings by others, in percent."""
    return [
        f"{one['by']} [{confidence(one['confidence'])}]: {one['models']} {size}, average "
        + ", ".join(f"{title} {value:.2f}" for title, value in averages.items())
        + f"; revision of the mask: {one['revision']}"
        for one in paper()["independent"]
        for size, averages in one["averages"].items()
    ]


def base_lines() -> list[str]:
    """Return published results of the base models by their authors, in percent."""
    base = paper()["base"]
    about = f"[{confidence(base['confidence'])}] ({base['source']}; {base['protocol']})"
    return [
        f"{hub} {about}: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        for hub, values in base["models"].items()
    ]


def said(one: dict[str, str]) -> str:
    """Return a statement of the paper, with its revision and our confidence in it."""
    return f"{one['revision']} [{confidence(one['confidence'])}]: {one['text']}"
