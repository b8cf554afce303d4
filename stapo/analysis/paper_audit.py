"""Audit of the paper's numbers: averages and headlines recomputed, with published remarks on them."""

from collections.abc import Iterator
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


def decoding_title(name: str) -> str:
    """Return a decoding of the paper's table as people say it, such as `T = 1.0, top-p = 1.0`."""
    title: str = paper()["decodings"][name]
    return title


def audit_rows() -> list[AuditedRow]:
    """Return each row of the paper's table with its recomputed average."""
    return [
        AuditedRow(name, size, method, METHODS[method].title, stated, sum(parts) / len(parts))
        for name in paper()["decodings"]
        for size, methods in paper()["table"][name].items()
        for method, (*parts, stated) in methods.items()
    ]


def stated_headline(revision: str, decoding: str) -> Headline | None:
    """Return the headline of a revision from its stated averages; None if its table is not known."""
    return _headline(revision, stated_averages(decoding))


def recomputed_headline(revision: str, decoding: str) -> Headline | None:
    """Return the same, computed from the means of the components."""
    averages: dict[str, dict[str, float]] = {}
    for row in audit_rows():
        if row.decoding == decoding:
            averages.setdefault(row.size, {})[row.method] = row.recomputed
    return _headline(revision, averages)


def _headline(revision: str, averages: dict[str, dict[str, float]]) -> Headline | None:
    if revision != paper()["table"]["revision"]:
        return None
    return headline(averages, paper()["headline"][revision]["method"], BASELINES)


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


def statements() -> dict[str, list[str]]:
    """Return heading -> what the paper and others say in percent, and the paper's headlines recomputed."""
    base = paper()["base"]
    about = f"[{confidence(base['confidence'])}] ({base['source']}; {base['protocol']})"
    return {
        "Headlines: mean relative gain over the strongest baseline": [*_headlines()],
        "Ablations and sensitivities": [said(one) for one in paper()["claims"]],
        "Worth knowing": [said(one) for one in paper()["notes"]],
        "Trained by others": [
            f"{one['by']} [{confidence(one['confidence'])}]: {one['models']} {size}, average "
            f"{_listed(averages)}; revision of the mask: {one['revision']}"
            for one in paper()["independent"]
            for size, averages in one["averages"].items()
        ],
        "Base models, under another protocol than the suite's": [
            f"{hub} {about}: {_listed(values)}" for hub, values in base["models"].items()
        ],
    }


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def _headlines() -> Iterator[str]:
    for revision, stated in paper()["headline"].items():
        for name, title in paper()["decodings"].items():
            gains = stated.get("gains", {}).get(name, {})
            sizes = ", ".join(f"{size} {gain:.2f} %" for size, gain in gains.items())
            line = (
                f"{METHODS[stated['method']].title}, {revision}, {title}: stated "
                f"{stated['means'][name]:.2f} %{f' ({sizes})' if sizes else ''} "
                f"[{confidence(stated['confidence'])}]"
            )
            first, second = stated_headline(revision, name), recomputed_headline(revision, name)
            if first and second:
                yield (
                    f"{line}; from the stated averages {first.mean:.2f} %, from the averages of the "
                    f"components {second.mean:.2f} %"
                )
            else:
                yield f"{line}; the table of this revision is not known, so it cannot be recomputed"


def said(one: dict[str, str]) -> str:
    """Return a statement of the paper, with its revision and our confidence in it."""
    return f"{one['revision']} [{confidence(one['confidence'])}]: {one['text']}"
