"""Columns and texts that tables of token records have in common."""

from collections.abc import Callable
from typing import Any, TypeVar

from stapo.analysis.columns import METHOD, SIZE, Column
from stapo.analysis.columns import Estimate as Cell
from stapo.analysis.evidence.estimates import Estimate

Row = TypeVar("Row")

LEADING: list[Column[Any]] = [SIZE, METHOD]
"""Columns of rows with the attributes size and title."""


def estimated(
    heading: str, value: Callable[[Row], Estimate], form: str = ".3g", unit: float = 1.0
) -> Column[Row]:
    """Return a column with an estimate and its interval.

    Args:
        heading: heading of the column.
        value: function of a row that returns the estimate.
        form: format specification of the numbers.
        unit: factor of the numbers, such as 100 for percent.
    """

    def cell(row: Row) -> Cell:
        found = value(row)
        return Cell(unit * found.value, unit * found.low, unit * found.high)

    return Column(heading, cell, form)


WHITE = {" ": "\u2423", "\n": "\u21b5", "\t": "\u21e5"}
"""White space -> the sign that stands for it where a token is shown alone."""


def literal(token: str) -> str:
    """Return a token with signs for its white space, so that every token can be seen."""
    return "".join(WHITE.get(character, character) for character in token)


def top_text(tokens: Any, probabilities: Any) -> str:
    """Return the most likely tokens with their probabilities in percent; empty if they are unknown."""
    if tokens is None or probabilities is None:
        return ""
    pairs = zip(tokens, probabilities, strict=True)
    return ", ".join(f"{literal(token)} {100 * float(p):.3g}" for token, p in pairs)
