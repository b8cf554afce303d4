"""The paper's numbers beside what they say of each other, and what is said of the paper elsewhere."""

from dataclasses import dataclass

from stapo.analysis.comparison import headline
from stapo.analysis.rows import Headline
from stapo.methods import BASELINES, METHODS
from stapo.reference import confidence, paper, stated_averages

ROUNDING = 0.0101
"""Components and averages are rounded to 0.01 each: they may differ by a unit of it."""


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
        """Whether the stated average is that of its components, to rounding."""
        return abs(self.difference) <= ROUNDING


@dataclass(frozen=True)
class AuditedHeadline:
    """The headline of one decoding: the mean relative gain over the sizes, in percent."""

    decoding: str
    revision: str
    confidence: str
    title: str
    """Of the method whose gain it is."""
    stated: float
    gains: dict[str, float]
    """By size, as stated; empty where only the mean is."""
    from_stated: float | None
    """From the averages as they are stated; None where the revision's table is not known."""
    from_recomputed: float | None
    """From the averages of the components."""


def decodings() -> list[str]:
    """Return the decodings of the paper's table."""
    return [name for name in paper()["table"] if name not in ("revision", "confidence")]


def audit_rows() -> list[AuditedRow]:
    """Return each row of the paper's table with its average computed anew."""
    return [
        AuditedRow(
            name, size, method, METHODS[method].title, row[-1], sum(row[:-1]) / len(row[:-1])
        )
        for name in decodings()
        for size, methods in paper()["table"][name].items()
        for method, row in methods.items()
    ]


def stated_headline(revision: str, decoding: str) -> Headline | None:
    """Return the headline of a revision from the averages that it states; None where they are not known."""
    if revision != paper()["table"]["revision"]:
        return None
    method = paper()["headline"][revision]["method"]
    return headline(stated_averages(decoding), method, BASELINES)


def audit_headlines() -> list[AuditedHeadline]:
    """Return the paper's headlines, each recomputed where its revision's table is known."""
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
    """Return a headline with what its table says of it."""
    sizes = ", ".join(f"{size} {gain:.2f} %" for size, gain in found.gains.items())
    line = (
        f"{found.title}, {found.revision}, {found.decoding}: stated {found.stated:.2f} %"
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
    """Return how many stated averages follow from their components, and which do not."""
    rows, table = audit_rows(), paper()["table"]
    odd = [
        f"{row.title} {row.size} at {row.decoding} (stated {row.stated:.2f}, components {row.recomputed:.2f})"
        for row in rows
        if not row.follows
    ]
    return (
        f"Table of {table['revision']} [{confidence(table['confidence'])}]: "
        f"{len(rows) - len(odd)} of {len(rows)} stated averages are those of their components, to rounding. "
        f"Not so: {', '.join(odd) or 'none'}."
    )


def claim_lines() -> list[str]:
    """Return what each revision says of its ablations and sensitivities."""
    return [said(one) for one in paper()["claims"]]


def note_lines() -> list[str]:
    """Return where the paper disagrees with itself, and what it leaves out."""
    return [said(one) for one in paper()["notes"]]


def independent_lines() -> list[str]:
    """Return what others measured who trained STAPO, in percent."""
    return [
        f"{one['by']} [{confidence(one['confidence'])}]: {one['models']} {size}, average "
        + ", ".join(f"{title} {value:.2f}" for title, value in averages.items())
        + f"; revision of the mask: {one['revision']}"
        for one in paper()["independent"]
        for size, averages in one["averages"].items()
    ]


def base_lines() -> list[str]:
    """Return what the authors of the base models publish of them, in percent."""
    base = paper()["base"]
    about = f"[{confidence(base['confidence'])}] ({base['source']}; {base['protocol']})"
    return [
        f"{hub} {about}: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        for hub, values in base["models"].items()
    ]


def said(one: dict[str, str]) -> str:
    """Return something that the paper says, with its revision and how sure that is."""
    return f"{one['revision']} [{confidence(one['confidence'])}]: {one['text']}"
