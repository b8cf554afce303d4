"""Ours beside the paper's numbers, and the paper's numbers beside what they say of each other."""

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from stapo.analysis.comparison import AVERAGE, MainTable, headline
from stapo.methods import METHODS
from stapo.reference import paper, stated_averages
from stapo.schema import HubModel
from stapo.study import Study

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
    sureness: str
    stated: float
    from_stated: float | None
    """From the averages as they are stated; None where the revision's table is not known."""
    from_recomputed: float | None
    """From the averages of the components."""


@dataclass(frozen=True)
class Compared:
    """One of our cells that the paper has too, in percent."""

    size: str
    title: str
    column: str
    ours: float
    paper: float

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours - self.paper


def decodings() -> list[str]:
    """Return the decodings of the paper's table."""
    return [name for name in paper()["table"] if name not in ("revision", "sureness")]


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


def audit_headlines() -> list[AuditedHeadline]:
    """Return the paper's headlines, each recomputed where its revision's table is known."""
    recomputed: dict[str, dict[str, dict[str, float]]] = {}
    for row in audit_rows():
        sizes = recomputed.setdefault(row.decoding, {})
        sizes.setdefault(row.size, {})[row.method] = row.recomputed
    found = []
    for revision, stated in paper()["headline"].items():
        known = revision == paper()["table"]["revision"]
        for name in decodings():
            pair = headline(stated_averages(name)), headline(recomputed[name])
            means = [h.mean if h and known else None for h in pair]
            found.append(AuditedHeadline(name, revision, stated["sureness"], stated[name], *means))
    return found


def compare(study: Study, table: MainTable) -> list[Compared]:
    """Return ours, the paper's and the difference for each cell that the paper has.

    A model built for tests is no stand-in for the paper's, whatever it is called.
    """
    reference, rows = paper(), []
    for row in table.rows:
        is_hub = isinstance(study.models[row.size], HubModel)
        stated = reference["table"].get(table.decoding, {}).get(row.size, {}).get(row.method)
        if not is_hub or stated is None:
            continue
        columns = dict(zip([*reference["benchmarks"], AVERAGE], stated, strict=True))
        if not set(reference["benchmarks"]) <= set(row.cells):
            columns.pop(AVERAGE)  # An average over other benchmarks is another quantity.
        rows += [
            Compared(row.size, row.title, column, row.cells[column].value, value)
            for column, value in columns.items()
            if column in row.cells
        ]
    return rows


def headline_line(found: AuditedHeadline) -> str:
    """Return a headline with what its table says of it."""
    line = f"{found.revision}, {found.decoding}: stated {found.stated:.2f} %"
    if found.from_stated is None or found.from_recomputed is None:
        return f"{line}; the table of this revision is not known, so it cannot be recomputed"
    return (
        f"{line}; from the stated averages {found.from_stated:.2f} %, from the averages of the components "
        f"{found.from_recomputed:.2f} %"
    )


def print_audit(console: Console) -> None:
    """Print the audit of the paper's table."""
    shown = RichTable(title=Text("The paper's averages, recomputed"), box=SIMPLE_HEAD)
    for heading in ("decoding", "size", "method"):
        shown.add_column(heading)
    for heading in ("stated", "recomputed", "difference"):
        shown.add_column(heading, justify="right")
    for row in audit_rows():
        numbers = (f"{row.stated:.2f}", f"{row.recomputed:.2f}", f"{row.difference:+.2f}")
        names = (row.decoding, row.size, row.title)
        shown.add_row(*names, *numbers, style="" if row.follows else "bold red")
    console.print(shown)
    for line in (audit_text(), *map(headline_line, audit_headlines())):
        console.print(Text(line))


def audit_text() -> str:
    """Return how many stated averages follow from their components, and which do not."""
    rows = audit_rows()
    odd = [
        f"{row.title} {row.size} at {row.decoding} (stated {row.stated:.2f}, components {row.recomputed:.2f})"
        for row in rows
        if not row.follows
    ]
    return (
        f"{len(rows) - len(odd)} of {len(rows)} stated averages are those of their components, to rounding. "
        f"Not so: {', '.join(odd) or 'none'}. "
        f"Revision {paper()['table']['revision']}, sureness {paper()['table']['sureness']}."
    )
