"""A table of evidence as data: what is written as Markdown, LaTeX and CSV, and shown in the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stapo.analysis.columns import Column


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: columns declared once, one object per row."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    caption: str = ""
    """What the reader sees and how it was computed, in one to three sentences of plain text."""
    notes: Sequence[str] = ()
    """Sentences below the table."""
