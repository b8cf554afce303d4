"""The columns of the main table and of what is printed with it, each declared once for every format.

To add a column, add one entry to the list of its table; to add a number to the CSV, a line to
`values.of_rows`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from stapo.analysis.against_paper import Compared
from stapo.analysis.cells import Cell
from stapo.analysis.paper_audit import AuditedRow, decoding_title
from stapo.analysis.rows import AVERAGE, MainTable, TableRow
from stapo.analysis.selection import Choice
from stapo.analysis.table import METHOD, SIZE, Column, Estimate
from stapo.evaluation.statistics import pass_at_k
from stapo.records.scores import FAILURES


def _estimate(column: str) -> Callable[[TableRow], Estimate]:
    def of(row: TableRow) -> Estimate:
        cell, marks = row.cells[column], row.marks if column == AVERAGE else ""
        return Estimate(cell.value, cell.low, cell.high, column in row.best, marks)

    return of


def mean(row: TableRow, of: Callable[[Cell], float]) -> float:
    """Return the mean of a number of a cell over the benchmarks of a row."""
    return float(np.mean([of(cell) for cell in row.responses.values()]))


def _percent(heading: str, of: Callable[[Cell], float]) -> Column[TableRow]:
    return Column(heading, lambda row: 100 * mean(row, of), ".2f")


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
    Column("Mean tokens", lambda row: mean(row, lambda cell: cell.mean("num_tokens")), ".1f"),
    _percent("Truncated [%]", lambda cell: cell.mean("truncated")),
    _percent("No box [%]", lambda cell: cell.share("no_box")),
    _percent("Duplicate [%]", lambda cell: cell.mean("duplicate")),
    _percent("Grader failed [%]", lambda cell: cell.share(*FAILURES)),
]


def responses(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns about the length and form of responses."""
    return [*named(table), *([] if table.checkpoints else [SEEDS]), *RESPONSES]


def pass_and_majority(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of pass@N and majority@N."""

    def column(name: str, samples: int) -> Column[TableRow]:
        def value(row: TableRow) -> str:
            cell = row.responses[name]
            solved = pass_at_k(cell.correct, powers(samples)[-1])
            return f"{100 * solved:.1f} / {100 * cell.majority:.1f}"

        return Column(name, value)

    return [*named(table), *(column(*one) for one in table.samples.items())]


def powers(samples: int) -> list[int]:
    """Return the powers of two up to N: the k of pass@k."""
    return [2**i for i in range(samples.bit_length())]


def by_rules(cell: Cell) -> float:
    """Return the share of responses that are correct by the rules."""
    return cell.mean("correct")


def with_verifier(cell: Cell) -> float:
    """Return the share of responses that are correct by the rules or by the verifier."""
    return cell.mean("correct_with_verifier")


def verdicts(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the verdicts by the rules and with the verifier."""

    def flips(name: str) -> Column[TableRow]:
        def value(row: TableRow) -> str:
            return f"{row.responses[name].flips} of {row.responses[name].judged}"

        return Column(f"Flips, {name}", value, css="count")

    return [
        *named(table),
        _percent("Rules", by_rules),
        _percent("With verifier", with_verifier),
        *map(flips, table.samples),
        Column("Cut", lambda row: sum(cell.cut for cell in row.responses.values())),
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


_FILES, _PAGE = ("md", "tex"), ("html",)
AGAINST_PAPER: list[Column[Compared]] = [
    REVISION,
    SIZE,
    METHOD,
    Column("Benchmark", lambda cell: cell.what, text=True),
    Column("Ours", lambda cell: cell.ours, ".2f", formats=_FILES),
    Column("Ours", lambda cell: _around(cell.ours, cell, ""), css="count", formats=_PAGE),
    Column("Paper", lambda cell: cell.paper, ".2f"),
    Column("Difference", lambda cell: cell.difference, "+.2f", formats=_FILES),
    Column(
        "Difference", lambda cell: _around(cell.difference, cell, "+"), css="count", formats=_PAGE
    ),
    CHANGED,
]

GAINS_AGAINST_PAPER: list[Column[Compared]] = [
    REVISION,
    METHOD,
    SIZE,
    Column("Ours", lambda gain: gain.ours, "+.2f"),
    Column("Paper", lambda gain: gain.paper, "+.2f"),
    Column("Difference", lambda gain: gain.difference, "+.2f"),
    # Markup: the report does not escape the apostrophe.
    Column(Markup("The paper's is"), lambda gain: gain.what, text=True),
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
