"""The columns of the main table and of what is printed with it, each declared once for every format.

To add a column, add one entry to the list of its table; to add a number to the CSV, a line to `csv_lines`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from stapo.analysis.against_paper import Compared, ComparedCell, ComparedGain
from stapo.analysis.cells import Cell
from stapo.analysis.paper_audit import AuditedRow, decoding_title
from stapo.analysis.rows import AVERAGE, MainTable, TableRow
from stapo.analysis.selection import Choice
from stapo.analysis.table import METHOD, SIZE, Column, Estimate
from stapo.evaluation.statistics import Interval, pass_at_k


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


CHECKPOINT: Column[Any] = replace(METHOD, heading="Checkpoint")


def named(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns that say what a row is: size and method, or checkpoint."""
    sizes = [SIZE] if any(row.size for row in table.rows) else []
    return [*sizes, CHECKPOINT if table.checkpoints else METHOD]


def accuracy(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the main table."""
    headings = {name: f"{name} avg@{samples}" for name, samples in table.samples.items()}
    headings |= {name: name for name in table.averages}
    return [*named(table), *(Column(text, _estimate(name)) for name, text in headings.items())]


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
    """Return the columns of pass@N and majority@N."""

    def column(name: str, samples: int) -> Column[TableRow]:
        most = _powers(samples)[-1]

        def value(row: TableRow) -> str:
            cell = row.responses[name]
            return f"{100 * pass_at_k(cell.correct, most):.1f} / {100 * cell.majority:.1f}"

        return Column(name, value)

    return [*named(table), *(column(*one) for one in table.samples.items())]


def _powers(samples: int) -> list[int]:
    """Return the powers of two up to N: the k of pass@k."""
    return [2**i for i in range(samples.bit_length())]


def _by_rules(cell: Cell) -> float:
    return cell.rule


def _with_verifier(cell: Cell) -> float:
    return cell.with_verifier


def verdicts(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the verdicts by the rules and with the verifier."""

    def flips(name: str) -> Column[TableRow]:
        def value(row: TableRow) -> str:
            return f"{row.responses[name].flips} of {row.responses[name].judged}"

        return Column(f"Flips, {name}", value, css="count")

    return [
        *named(table),
        Column("Rules", _percent(_by_rules), ".2f"),
        Column("With verifier", _percent(_with_verifier), ".2f"),
        *map(flips, table.samples),
        Column("Cut", lambda row: sum(cell.verifier_cut for cell in row.responses.values())),
    ]


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


AGAINST_PAPER: list[Column[ComparedCell]] = [
    REVISION,
    SIZE,
    METHOD,
    Column("Benchmark", lambda cell: cell.column, text=True),
    Column("Ours", lambda cell: cell.ours, ".2f", formats=("md", "tex")),
    Column("Ours", lambda cell: _around(cell.ours, cell, ""), css="count", formats=("html",)),
    Column("Paper", lambda cell: cell.paper, ".2f"),
    Column("Difference", lambda cell: cell.difference, "+.2f", formats=("md", "tex")),
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
    Column("Decoding", lambda row: decoding_title(row.decoding), text=True),
    Column("Size", lambda row: row.size, text=True),
    Column("Method", lambda row: row.title, text=True),
    Column("Avg stated", lambda row: row.stated, ".2f"),
    Column("Mean of the six", lambda row: row.recomputed, ".2f"),
    Column("Difference", lambda row: row.difference, "+.2f"),
]


@dataclass(frozen=True)
class Line:
    """A line of the CSV: one number of one row."""

    row: TableRow
    of: str
    """Its benchmark or average."""
    metric: str
    value: float | Interval

    def cells(self, table: MainTable) -> list[str | int]:
        """Return the cells of `CSV`."""
        found, low, high = self.value, "", ""
        if isinstance(found, Interval):
            low, high = f"{found.low:.6f}", f"{found.high:.6f}"
            found = found.value
        value = f"{found:.6f}" if isinstance(found, float) else found
        samples, row = table.samples.get(self.of, ""), self.row
        problems = problems_of(table, self.of)
        head = [row.size, row.method, self.of, self.metric, value, low, high]
        return [*head, problems, samples, row.seeds, row.source]


CSV = (
    "size", "method", "benchmark", "metric", "value", "low", "high", "problems", "samples", "seeds", "source",
)  # fmt: skip
"""Headings of the CSV."""


def problems_of(table: MainTable, of: str) -> int:
    """Return the number of problems of a benchmark, or of all benchmarks of an average."""
    return sum(table.problems[name] for name in table.averages.get(of, [of]))


def csv_lines(table: MainTable) -> Iterator[Line]:
    """Yield the lines of the CSV; the benchmarks of each row come before its averages."""
    for row in table.rows:
        for name, samples in table.samples.items():
            cell = row.responses[name]
            yield Line(row, name, f"avg@{samples}", row.cells[name])
            for k in _powers(samples):
                yield Line(row, name, f"pass@{k}", 100 * pass_at_k(cell.correct, k))
            yield Line(row, name, f"majority@{samples}", 100 * cell.majority)
        for average in table.averages:
            yield Line(row, average, "avg@N", row.cells[average])
    for row in table.rows if table.verifier else ():
        for name, samples in table.samples.items():
            cell = row.responses[name]
            yield Line(row, name, f"avg@{samples} by the rules", 100 * cell.rule)
            yield Line(row, name, f"avg@{samples} with the verifier", 100 * cell.with_verifier)
            for metric in ("flips", "judged", "cut"):
                count = cell.verifier_cut if metric == "cut" else getattr(cell, metric)
                yield Line(row, name, metric, count)
        rules, both = (_percent(of)(row) for of in (_by_rules, _with_verifier))
        yield Line(row, AVERAGE, "avg@N by the rules", rules)
        yield Line(row, AVERAGE, "avg@N with the verifier", both)
