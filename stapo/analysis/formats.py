"""Output formats of tables: Markdown, LaTeX and HTML by templates, the terminal, and CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jinja2
from markupsafe import Markup
from rich.table import Table as RichTable
from rich.text import Text

from stapo.analysis import columns
from stapo.analysis.columns import Column
from stapo.analysis.grids import Grid
from stapo.analysis.latex import heading_line, latex, latex_label, layout, table_lines
from stapo.analysis.notes import comparison_text, headline_texts
from stapo.analysis.rows import MainTable
from stapo.text import markdown, visible

Row = TypeVar("Row")
TEMPLATES = Path(__file__).parent / "templates"


def template(name: str) -> jinja2.Template:
    """Return a template; the second part of its name is its format, such as tex in `main.tex.j2`."""
    suffix = name.split(".")[1]
    # Not braces for LaTeX, which uses them itself.
    marks = ("<<", ">>") if suffix == "tex" else ("{{", "}}")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=suffix != "html",
        autoescape=suffix == "html",
        finalize=_visible if suffix == "html" else None,
        variable_start_string=marks[0],
        variable_end_string=marks[1],
    )
    environment.filters |= {
        "tex": latex,
        "md": lambda value: markdown(str(value)),
        "shown": lambda found: [column for column in found if suffix in column.formats],
    }
    environment.globals |= {
        "columns": columns,
        "headline_texts": headline_texts,
        "comparison_text": comparison_text,
        "counted": _counted,
    }
    return environment.get_template(name)


def _visible(value: Any) -> Any:
    """Return a value as the report shows it: with escapes for hidden characters in text."""
    text = isinstance(value, str) and not isinstance(value, Markup)
    return visible(value, keep="\n") if text else value


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def latex_table(label: Sequence[str], grid: Grid, made_by: str, title: str) -> str:
    r"""Return a table as LaTeX, to be read by `\input`; long texts make it one that may have several pages.

    Args:
        label: parts of its label.
        grid: the table; its notes are set below it.
        made_by: fingerprint of everything that determines it.
        title: its caption in a list of tables.
    """
    shown = [column for column in grid.columns if "tex" in column.formats]
    found = layout(shown, grid.rows)
    return template("grid.tex.j2").render(
        grid=grid,
        title=title,
        made_by=made_by,
        label=latex_label(*label),
        preamble=found.preamble,
        long=bool(found.size),
        size=found.size,
        turned=found.turned,
        heading=heading_line(shown, found.paragraphs),
        lines=table_lines(shown, grid.rows, found),
    )


def csv_text(table: MainTable) -> str:
    """Return a table as CSV with one line for each number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.heading for column in columns.CSV])
    for line in columns.csv_lines(table):
        writer.writerow([column.shown(line) for column in columns.CSV])
    return stream.getvalue()


def terminal_table(
    found: Sequence[Column[Row]],
    groups: Iterable[Iterable[Row]],
    style: Callable[[Row], str] = lambda row: "",
    **options: Any,
) -> RichTable:
    """Return a table for the terminal, in which text is not interpreted as markup.

    Args:
        found: columns of the table.
        groups: rows of the table, in groups that are separated from each other.
        style: function that returns the style of a row.
        options: further arguments of `rich.table.Table`.
    """
    table = RichTable(**options)
    here = [column for column in found if "terminal" in column.formats]
    for column in here:
        arguments = {"header": column.heading, **column.terminal}
        header = Text(arguments.pop("header"))
        table.add_column(header, justify="left" if column.text else "right", **arguments)
    for rows in groups:
        for row in rows:
            table.add_row(*(_text(column, row) for column in here), style=style(row))
        table.add_section()
    return table


def _text(column: Column[Row], row: Row) -> Text:
    cell = column.shown(row)
    if isinstance(cell, str):
        return Text(visible(cell))
    return Text(f"{cell.value:.2f}{cell.marks}", style="bold" if cell.best else "")
