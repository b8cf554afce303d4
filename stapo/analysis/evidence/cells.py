"""Columns and texts that tables of token records have in common."""

from collections.abc import Callable
from typing import Any, TypeVar

from stapo.analysis.columns import SIZE, Column, Metric
from stapo.analysis.columns import Estimate as Cell
from stapo.analysis.evidence.estimates import Estimate, written

Row = TypeVar("Row")

METHOD: Column[Any] = Column("Method", lambda row: row.title, text=True)
LEADING: list[Column[Any]] = [SIZE, METHOD]
"""Columns of rows with the attributes size and title."""


def estimated(
    heading: str,
    value: Callable[[Row], Estimate],
    form: str = ".3g",
    unit: float = 1.0,
    metric: str = "",
) -> list[Column[Row]]:
    """Return a column with an estimate and its interval, and its column of the CSV.

    Args:
        heading: heading of the column.
        value: function of a row that returns the estimate.
        form: format specification of the numbers.
        unit: factor of the numbers, such as 100 for percent.
        metric: name in the CSV; the heading if empty.
    """

    def number(row: Row) -> Cell:
        found = value(row)
        return Cell(unit * found.value, unit * found.low, unit * found.high, best=False, marks="")

    name = metric or heading
    return [
        Column(heading, lambda row: written(value(row), form, unit)),
        Column(name, number, formats=(), metric=Metric(name, "")),
    ]


WHITE = {" ": "\u2423", "\n": "\u23ce", "\t": "\u21e5"}
"""White space -> the sign that stands for it where a token is shown alone."""


def literal(token: str) -> str:
    """Return a token with signs for its white space, so that every token can be seen."""
    return "".join(WHITE.get(character, character) for character in token)


def top_text(tokens: Any, probabilities: Any) -> str:
    """Return the most likely tokens with their probabilities in percent; empty if they are unknown."""
    if tokens is None or probabilities is None:
        return ""
    pairs = zip(tokens, probabilities, strict=True)
    return ", ".join(f"{literal(token)} {100 * float(p):.2g}" for token, p in pairs)
