"""A table as data, and as Markdown, CSV and in the terminal; the report is HTML by a template."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from textwrap import fill
from typing import Any, Generic, TypeVar

import jinja2
import pyarrow as pa
from markupsafe import Markup
from pyarrow import csv as pacsv
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from stapo.suite.evaluation.statistics import Interval
from stapo.suite.text import markdown, visible

Row = TypeVar("Row")
TEMPLATES = Path(__file__).parent / "templates"
DIGITS = ".8g"
FORMULA = re.compile(r"[=+@\t\r-]")
NUMBERS = re.compile(r"[-+=@\d.,e%\[\] ]*")
"""A text of signs and digits alone, such as a number with its interval, is no harmful formula."""
UNMEASURED = "\u2013"
"""What stands for a number that was not measured."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table in every format."""

    heading: str
    value: Callable[[Row], str | float | Interval]
    form: str = ""
    """Format specification of a number, as for the function `format`, and of a value with its interval."""
    text: bool = False
    """Whether it contains text, which is left-aligned; numbers are right-aligned."""
    best: Callable[[Row], bool] = lambda row: False
    """Whether the value of a row is shown in bold."""

    def shown(self, row: Row) -> str | Interval:
        """Return the cell of a row."""
        value = self.value(row)
        if isinstance(value, Interval):
            return value
        return UNMEASURED if value != value else format(value, self.form)

    def number(self, estimate: Interval) -> str:
        """Return a value, with two decimals if the column has no form."""
        value = estimate.value
        return format(value, self.form or ".2f") if isfinite(value) else UNMEASURED

    def bounds(self, estimate: Interval) -> tuple[str, str] | None:
        """Return the ends of an interval, if it has any; with one decimal if the column has no form."""
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


MODEL: Column[Any] = Column("Model", lambda row: row.model, text=True)
METHOD: Column[Any] = Column("Method", lambda row: row.title, text=True)
NAME: Column[Any] = Column("Tokens", lambda row: row.name, text=True)
RECORDED: Column[Any] = Column("Recorded", lambda row: int(row.mask.sum()), ",d")


def estimated(
    heading: str, value: Callable[[Row], Interval], form: str = ".3g", unit: float = 1.0
) -> Column[Row]:
    """Return a column of values with intervals, in another unit such as 100 for percent."""
    return Column(heading, lambda row: value(row).times(unit), form)


def with_interval(estimate: Interval, form: str) -> str:
    """Return a value with its interval, if it has one, as text; empty for nan."""
    if not isfinite(estimate.value):
        return ""
    bounds = f" [{estimate.low:{form}}, {estimate.high:{form}}]" if isfinite(estimate.low) else ""
    return f"{estimate.value:{form}}{bounds}"


def template(name: str) -> jinja2.Template:
    """Return a template; the second part of its name is its format, such as md in `main.md.j2`."""
    suffix = name.split(".")[1]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=suffix != "html",
        autoescape=suffix == "html",
        finalize=_visible if suffix == "html" else None,
    )
    environment.filters["md"] = lambda value: markdown(str(value))
    environment.globals["counted"] = lambda number, what: f"{number} {what}{'s' * (number != 1)}"
    return environment.get_template(name)


def _visible(value: Any) -> Any:
    """Return a value as the report shows it: with escapes for hidden characters in text."""
    text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(value, keep="\n") if text else value


def render(table: Table, suffix: str, title: str, made_by: str) -> str:
    """Return a table of evidence as `md` or `csv`."""
    if suffix == "csv":
        return csv_text(_csv_lines(table))
    grid = markdown_grid(table.columns, table.rows)
    texts = [f"# {markdown(title)}", markdown(table.caption), grid, *map(markdown, table.notes)]
    return "\n\n".join([*texts, f"Configuration {made_by}.\n"])


def markdown_grid(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """Return the lines of a table in Markdown."""
    lines = [[markdown(column.heading) for column in columns]]
    lines += [[_markdown_cell(column, row) for column in columns] for row in rows]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{'---|' * len(columns)}", *body])


def _markdown_cell(column: Column[Row], row: Row) -> str:
    if isinstance(cell := column.shown(row), str):
        return markdown(cell)
    number, bounds = column.number(cell), column.bounds(cell)
    interval = f"<br>[{', '.join(bounds)}]" if bounds else ""
    return (f"**{number}**" if column.best(row) else number) + interval


def csv_text(lines: Iterable[Iterable[str | float | None]]) -> str:
    """Return lines of cells as CSV, in which no text is a formula of a spreadsheet; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows(map(_no_formula, line) for line in lines)
    return stream.getvalue()


def _no_formula(cell: str | float | None) -> str | float | None:
    is_formula = isinstance(cell, str) and FORMULA.match(cell) and not NUMBERS.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def read_csv(path: Path, text: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of `csv_text` by heading; columns of `text` are no numbers, empty cells are None."""
    options = pacsv.ConvertOptions(
        column_types=dict.fromkeys(text, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
    )
    rows = pacsv.read_csv(path, convert_options=options).to_pylist()
    return [{_as_written(key): _as_written(cell) for key, cell in row.items()} for row in rows]


def _as_written(cell: Any) -> Any:
    is_formula = isinstance(cell, str) and cell[:1] == "'" and _no_formula(cell[1:]) == cell
    return cell[1:] if is_formula else cell


def _csv_lines(table: Table) -> Iterator[Sequence[str]]:
    """Yield heading and rows: numbers with all digits, and two columns more for the bounds of estimates."""
    columns = []
    for column in table.columns:
        values = [column.value(row) for row in table.rows]
        plain = [value.value if isinstance(value, Interval) else value for value in values]
        columns.append([column.heading, *map(_plain, plain)])
        for end in ("low", "high") if any(isinstance(v, Interval) for v in values) else ():
            ends = [_plain(getattr(value, end, nan)) for value in values]
            columns.append([f"{column.heading}, {end}", *ends])
    yield from zip(*columns, strict=True)


def _plain(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, int):
        return str(value)
    return format(value, DIGITS) if isfinite(value) else ""


def terminal_table(
    columns: Sequence[Column[Row]], groups: Iterable[Iterable[Row]], title: Text
) -> RichTable:
    """Return a table for the terminal, whose text is not interpreted as markup.

    It is as wide as its content: print it with `crop=False`. Groups of rows are separated from each other.
    """
    table = RichTable(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        heading = Text(fill(column.heading, 7, break_long_words=False))
        table.add_column(heading, justify="left" if column.text else "right", no_wrap=True)
    for rows in groups:
        for row in rows:
            table.add_row(*(_text(column, row) for column in columns))
        table.add_section()
    table.width = Console(width=10**4).measure(table).maximum
    return table


def _text(column: Column[Row], row: Row) -> Text:
    if isinstance(cell := column.shown(row), str):
        return Text(visible(cell))
    return Text(f"{cell.value:.2f}", style="bold" if column.best(row) else "")
