"""The columns of every table, each declared once for Markdown, LaTeX, HTML, the terminal and the CSV.

To add a column, add one entry to the list of its table. The CSV has one line for each number of a column
with a `Metric`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any, Generic, TypeVar

import numpy as np
from markupsafe import Markup

from stapo.analysis.against_paper import Compared, ComparedCell, ComparedGain
from stapo.analysis.cells import Cell
from stapo.analysis.paper_audit import AuditedRow, decoding_title
from stapo.analysis.rows import AVERAGE, MainTable, TableRow
from stapo.analysis.selection import Choice
from stapo.evaluation.statistics import Interval, pass_at_k

Row = TypeVar("Row")
UNMEASURED = "\u2013"
"""What stands for a number that was not measured."""
FORMATS = ("md", "tex", "html", "terminal")
"""Formats with one column of a table for each `Column`."""


@dataclass(frozen=True)
class Estimate(Interval):
    """A value with its 95 % interval; nan stands for what was not measured, also as a bound."""

    low: float = nan
    high: float = nan
    best: bool = False
    marks: str = ""
    """Marks of the targets that differ from it."""


@dataclass(frozen=True)
class Metric:
    """Name of a number in the CSV."""

    name: str
    of: str
    """Its benchmark or average."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table in every format."""

    heading: str
    value: Callable[[Row], str | float | Estimate]
    form: str = ""
    """Format specification of a number, as for the function `format`, and of an estimate with its bounds."""
    text: bool = False
    """Whether it contains text, which is left-aligned; numbers are right-aligned."""
    footnote: str = ""
    """Mark of a footnote after the heading."""
    css: str = ""
    """CSS class of its cells in the report, if not that of text or of numbers."""
    terminal: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `rich.table.Table.add_column`."""
    formats: Collection[str] = FORMATS
    """Formats that show it."""
    metric: Metric | None = None
    """Name in the CSV; None for a column that is not in the CSV."""

    def shown(self, row: Row) -> str | Estimate:
        """Return the cell of a row."""
        value = self.value(row)
        if isinstance(value, Estimate):
            return value
        return UNMEASURED if value != value else format(value, self.form)

    def number(self, estimate: Estimate) -> str:
        """Return the value of an estimate, with two decimals if the column has no form."""
        value = estimate.value
        return format(value, self.form or ".2f") if isfinite(value) else UNMEASURED

    def bounds(self, estimate: Estimate) -> tuple[str, str] | None:
        """Return the bounds of an estimate, if it has any; with one decimal if the column has no form."""
        low, high = estimate.low, estimate.high
        if not (isfinite(low) and isfinite(high)):
            return None
        form = self.form or ".1f"
        return format(low, form), format(high, form)


def _estimate(column: str) -> Callable[[TableRow], Estimate]:
    def of(row: TableRow) -> Estimate:
        cell, marks = row.cells[column], row.marks if column == AVERAGE else ""
        return Estimate(cell.value, cell.low, cell.high, column in row.best, marks)

    return of


def _mean(of: Callable[[Cell], float]) -> Callable[[TableRow], float]:
    """Return a function of a row that returns the mean over its benchmarks."""
    return lambda row: float(np.mean([of(cell) for cell in row.responses.values()]))


def _percent(share: Callable[[Cell], float]) -> Callable[[TableRow], float]:
    """Return a function of a row that returns 100 times the mean over its benchmarks."""
    mean = _mean(share)
    return lambda row: 100 * mean(row)


def _of(benchmark: str, of: Callable[[Cell], Any]) -> Callable[[TableRow], Any]:
    """Return a function of a row that returns the value of one benchmark."""
    return lambda row: of(row.responses[benchmark])


def _only_csv(
    benchmark: str, name: str, of: Callable[[Cell], float], form: str = ""
) -> Column[TableRow]:
    """Return a column for a number of a benchmark that is only in the CSV."""
    return Column(name, _of(benchmark, of), form, formats=(), metric=Metric(name, benchmark))


SIZE: Column[Any] = Column(
    "Size", lambda row: row.size, text=True, terminal={"header": "size", "no_wrap": True}
)
METHOD: Column[Any] = Column(
    "Method",
    lambda row: row.title,
    text=True,
    terminal={"header": "method", "overflow": "fold", "min_width": 10},
)
CHECKPOINT: Column[Any] = replace(
    METHOD, heading="Checkpoint", terminal={**METHOD.terminal, "header": "checkpoint"}
)


def named(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns that say what a row is: size and method, or checkpoint."""
    sizes = [SIZE] if any(row.size for row in table.rows) else []
    return [*sizes, CHECKPOINT if table.checkpoints else METHOD]


def accuracy(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the main table."""
    benchmarks = [
        Column(
            f"{name} avg@{samples}",
            _estimate(name),
            terminal={"header": name, "overflow": "fold", "min_width": 6},
            metric=Metric(f"avg@{samples}", name),
        )
        for name, samples in table.samples.items()
    ]
    averages = [
        Column(
            name,
            _estimate(name),
            terminal={"no_wrap": True},
            # Other averages do not fit into the 80 characters of a terminal; they are printed below.
            formats=FORMATS if name == AVERAGE else ("md", "tex", "html"),
            metric=Metric("avg@N", name),
        )
        for name in table.averages
    ]
    return [
        *named(table),
        *benchmarks,
        *averages,
    ]


SEEDS: Column[TableRow] = Column("Training seeds", lambda row: row.seeds)
RESPONSES: list[Column[TableRow]] = [
    Column("Mean tokens", _mean(lambda cell: cell.num_tokens), ".1f"),
    Column("Truncated [%]", _percent(lambda cell: cell.truncated_fraction), ".2f"),
    Column("No box [%]", _percent(lambda cell: cell.no_box_fraction), ".2f"),
    Column("Duplicate [%]", _percent(lambda cell: cell.duplicate_fraction), ".2f"),
    Column("Grader failed [%]", _percent(lambda cell: cell.failed_fraction), ".2f"),
]


def responses(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns about the length and form of responses."""
    return [*named(table), *([] if table.checkpoints else [SEEDS]), *RESPONSES]


def pass_and_majority(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of pass@N and majority@N; the CSV also has pass@k for smaller powers of two."""
    columns = named(table)
    for name, samples in table.samples.items():
        powers = [2**i for i in range(samples.bit_length())]
        columns += [
            Column(name, _of(name, _pass_and_majority(powers[-1]))),
            *(_only_csv(name, f"pass@{k}", _pass_at(k)) for k in powers),
            _only_csv(name, f"majority@{samples}", lambda cell: 100 * cell.majority),
        ]
    return columns


def _pass_at(k: int) -> Callable[[Cell], float]:
    return lambda cell: 100 * pass_at_k(cell.correct, k)


def _pass_and_majority(k: int) -> Callable[[Cell], str]:
    return lambda cell: f"{100 * pass_at_k(cell.correct, k):.1f} / {100 * cell.majority:.1f}"


def verdicts(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the verdicts by the rules and with the verifier."""
    columns: list[Column[TableRow]] = [
        *named(table),
        Column(
            "Rules",
            _mean(lambda cell: 100 * cell.rule),
            ".2f",
            metric=Metric("avg@N by the rules", AVERAGE),
        ),
        Column(
            "With verifier",
            _mean(lambda cell: 100 * cell.with_verifier),
            ".2f",
            metric=Metric("avg@N with the verifier", AVERAGE),
        ),
    ]
    for name, samples in table.samples.items():
        flips = _of(name, lambda cell: f"{cell.flips} of {cell.judged}")
        columns += [
            Column(f"Flips, {name}", flips, css="count"),
            _only_csv(name, f"avg@{samples} by the rules", lambda cell: 100 * cell.rule),
            _only_csv(
                name, f"avg@{samples} with the verifier", lambda cell: 100 * cell.with_verifier
            ),
            _only_csv(name, "flips", lambda cell: cell.flips),
            _only_csv(name, "judged", lambda cell: cell.judged),
            _only_csv(name, "cut", lambda cell: cell.verifier_cut),
        ]
    cut = Column[TableRow](
        "Cut", lambda row: sum(cell.verifier_cut for cell in row.responses.values())
    )
    return [*columns, cut]


CHOICES: list[Column[Choice]] = [
    SIZE,
    Column("Method", lambda choice: choice.method, text=True),
    Column("Seed", lambda choice: choice.seed),
    Column("Step by the rule", lambda choice: choice.selected),
    Column("Avg", lambda choice: 100 * choice.averages[choice.selected], ".2f"),
    Column("Best on the test", lambda choice: choice.best_on_test, footnote="*"),
    Column("Avg", lambda choice: 100 * choice.averages[choice.best_on_test], ".2f", footnote="*"),
    Column("Optimism", lambda choice: 100 * choice.optimism, "+.2f", footnote="*"),
]

REVISION: Column[Any] = Column("Revision", lambda row: row.revision, text=True)
CHANGED: Column[Any] = Column("Changed in the method", lambda row: row.changed, text=True)


def _around(value: float, cell: Compared, form: str) -> str:
    """Return ours, or ours minus the paper's, with the interval of ours around it."""
    if cell.interval is None:
        return format(value, f"{form}.2f")
    low, high = (value + end - cell.ours for end in (cell.interval.low, cell.interval.high))
    return f"{value:{form}.2f} [{low:{form}.1f}, {high:{form}.1f}]"


_NOT_HTML = ("md", "tex", "terminal")
AGAINST_PAPER: list[Column[ComparedCell]] = [
    REVISION,
    SIZE,
    METHOD,
    Column("Benchmark", lambda cell: cell.column, text=True),
    Column("Ours", lambda cell: cell.ours, ".2f", formats=_NOT_HTML),
    Column("Ours", lambda cell: _around(cell.ours, cell, ""), css="count", formats=("html",)),
    Column("Paper", lambda cell: cell.paper, ".2f"),
    Column("Difference", lambda cell: cell.difference, "+.2f", formats=_NOT_HTML),
    Column(
        "Difference",
        lambda cell: _around(cell.difference, cell, "+"),
        css="count",
        formats=("html",),
    ),
    CHANGED,
]

GAINS_AGAINST_PAPER: list[Column[ComparedGain]] = [
    REVISION,
    METHOD,
    Column("Size", lambda gain: gain.where, text=True),
    Column("Ours", lambda gain: gain.ours, "+.2f"),
    Column("Paper", lambda gain: gain.paper, "+.2f"),
    Column("Difference", lambda gain: gain.difference, "+.2f"),
    # Markup: the report does not escape the apostrophe.
    Column(Markup("The paper's is"), lambda gain: gain.basis, text=True),
    CHANGED,
]

AUDIT: list[Column[AuditedRow]] = [
    Column(
        "Decoding",
        lambda row: decoding_title(row.decoding),
        text=True,
        terminal={"header": "decoding"},
    ),
    Column("Size", lambda row: row.size, text=True, terminal={"header": "size"}),
    Column("Method", lambda row: row.title, text=True, terminal={"header": "method"}),
    Column("Avg stated", lambda row: row.stated, ".2f", terminal={"header": "stated"}),
    Column("Mean of the six", lambda row: row.recomputed, ".2f", terminal={"header": "recomputed"}),
    Column("Difference", lambda row: row.difference, "+.2f", terminal={"header": "difference"}),
]


@dataclass(frozen=True)
class Line:
    """A line of the CSV: one number of one row."""

    table: MainTable
    row: TableRow
    metric: Metric
    value: str | float | Estimate


def _bound(name: str) -> Callable[[Line], str]:
    return lambda line: (
        f"{getattr(line.value, name):.6f}" if isinstance(line.value, Estimate) else ""
    )


def _number(line: Line) -> str:
    value = line.value.value if isinstance(line.value, Estimate) else line.value
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def problems_of(line: Line) -> int:
    """Return the number of problems of a line's benchmark, or of all benchmarks of its average."""
    of = line.metric.of
    return sum(line.table.problems[name] for name in line.table.averages.get(of, [of]))


CSV: list[Column[Line]] = [
    Column("size", lambda line: line.row.size),
    Column("method", lambda line: line.row.method),
    Column("benchmark", lambda line: line.metric.of),
    Column("metric", lambda line: line.metric.name),
    Column("value", _number),
    Column("low", _bound("low")),
    Column("high", _bound("high")),
    Column("problems", problems_of),
    Column("samples", lambda line: line.table.samples.get(line.metric.of, "")),
    Column("seeds", lambda line: line.row.seeds),
    Column("source", lambda line: line.row.source),
]


def csv_lines(table: MainTable) -> Iterable[Line]:
    """Yield the lines of the CSV; the benchmarks of each row come before its averages."""
    order = [*table.samples, *table.averages]
    parts = [[*accuracy(table), *responses(table), *pass_and_majority(table)]]
    parts += [verdicts(table)] * table.verifier
    for columns in parts:
        measured = [(column, column.metric) for column in columns if column.metric]
        measured.sort(key=lambda one: order.index(one[1].of))
        for row in table.rows:
            for column, metric in measured:
                yield Line(table, row, metric, column.value(row))
