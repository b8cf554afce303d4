"""A table as data, for Markdown, CSV, HTML and the terminal: `formats` renders it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any, Generic, TypeVar

from stapo.evaluation.statistics import Interval

Row = TypeVar("Row")
UNMEASURED = "\u2013"
"""What stands for a number that was not measured."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; nan stands for what was not measured, also as a bound."""

    value: float
    low: float = nan
    high: float = nan
    best: bool = False


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table in every format."""

    heading: str
    value: Callable[[Row], str | float | Estimate]
    form: str = ""
    """Format specification of a number, as for the function `format`, and of an estimate with its bounds."""
    text: bool = False
    """Whether it contains text, which is left-aligned; numbers are right-aligned."""
    css: str = ""
    """CSS class of its cells in the report, if not that of text or of numbers."""

    def shown(self, row: Row) -> str | Estimate:
        """Return the cell of a row."""
        value = self.value(row)
        if isinstance(value, Estimate):
            return value
        return UNMEASURED if value != value else format(value, self.form)

    def number(self, estimate: Estimate) -> str:
        """Return the value of an estimate, with two decimals if the column has no form."""
        return (
            format(estimate.value, self.form or ".2f") if isfinite(estimate.value) else UNMEASURED
        )

    def bounds(self, estimate: Estimate) -> tuple[str, str] | None:
        """Return the bounds of an estimate, if it has any; with one decimal if the column has no form."""
        if not (isfinite(estimate.low) and isfinite(estimate.high)):
            return None
        form = self.form or ".1f"
        return format(estimate.low, form), format(estimate.high, form)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: columns declared once, one object per row."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    caption: str = ""
    """What the reader sees and how it was computed, in one to three sentences of plain text."""
    notes: Sequence[str] = ()
    """Sentences below the table."""


SIZE: Column[Any] = Column("Size", lambda row: row.size, text=True)
METHOD: Column[Any] = Column("Method", lambda row: row.title, text=True)


def estimated(
    heading: str, of: Callable[[Row], Interval], form: str = ".3g", unit: float = 1.0
) -> Column[Row]:
    """Return a column of values with intervals.

    Args:
        heading: heading of the column.
        of: function of a row that returns the value with its interval.
        form: format specification of the numbers.
        unit: factor of the numbers, such as 100 for percent.
    """
    return Column(heading, lambda row: scaled(of(row), unit), form)


def scaled(found: Interval, unit: float) -> Estimate:
    """Return a value with its interval in another unit, such as 100 for percent."""
    return Estimate(unit * found.value, unit * found.low, unit * found.high)


def with_interval(found: Interval, form: str) -> str:
    """Return a value with its interval, if it has one, as text; empty for nan."""
    if not isfinite(found.value):
        return ""
    value, low, high = (format(one, form) for one in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]" if isfinite(found.low) else value
