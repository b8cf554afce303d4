"""Writing of tables of evidence as Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.columns import UNMEASURED, Column, Estimate
from stapo.analysis.exhibits import GRIDS
from stapo.analysis.formats import latex_table, template
from stapo.analysis.grids import Grid
from stapo.exhibits import TABLES
from stapo.files import replace_file
from stapo.study import Study, identity
from stapo.text import visible

DIGITS = ".8g"
"""Digits of a number in the CSV."""


def write_evidence(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write a table of evidence in its three formats.

    Raises:
        DamagedFileError: files that it is computed from are missing, damaged or incomplete.
        StaleScoreError: scores do not belong to this study in its current state.
    """
    written = []
    for suffix, text in evidence_texts(Artefacts(study, root), name).items():
        path = root / paths.TABLE.format(study=study.name, table=name, suffix=suffix)
        with replace_file(path) as stream:
            stream.write(text)
        written.append(path)
    return written


def evidence_texts(artefacts: Artefacts, name: str) -> dict[str, str]:
    """Return suffix -> content of the files of a table of evidence; equal results give equal bytes.

    Raises:
        DamagedFileError: files that it is computed from are missing, damaged or incomplete.
        StaleScoreError: scores do not belong to this study in its current state.
    """
    study, grid = artefacts.study, GRIDS[name](artefacts)
    made_by = identity.exhibit_fingerprint(study, TABLES[name])
    return {
        suffix: render_grid(study.name, name, grid, suffix, made_by) for suffix in paths.SUFFIXES
    }


def render_grid(study: str, name: str, grid: Grid, suffix: str, made_by: str) -> str:
    """Return a table of evidence as `md`, `tex` or `csv`.

    Args:
        study: name of the study.
        name: name of the table in `stapo.exhibits.TABLES`.
        grid: the table.
        suffix: the format.
        made_by: fingerprint of everything that determines it.
    """
    if suffix == "csv":
        return _csv(grid)
    grid = noted(grid)
    title = TABLES[name].title
    if suffix == "tex":
        return latex_table((study, name), grid, made_by, f"{study}: {title}")
    return template(f"grid.{suffix}.j2").render(
        study=study, title=title, grid=grid, made_by=made_by
    )


def noted(grid: Grid) -> Grid:
    """Return a table with a note on the sign for numbers that were not measured, if it has any."""
    if not _has_unmeasured(grid):
        return grid
    return replace(grid, notes=[*grid.notes, f"{UNMEASURED}: not measured."])


def _has_unmeasured(grid: Grid) -> bool:
    cells = (column.shown(row) for row in grid.rows for column in grid.columns)
    return any(
        cell == UNMEASURED if isinstance(cell, str) else not isfinite(cell.value) for cell in cells
    )


def _csv(grid: Grid) -> str:
    """Return a table as CSV: numbers with all digits, and two columns more for the bounds of estimates."""
    parts = [list(_csv_column(column, grid.rows)) for column in grid.columns]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows(zip(*(column for part in parts for column in part), strict=True))
    return stream.getvalue()


def _csv_column(column: Column[Any], rows: Any) -> Iterator[list[str]]:
    """Yield the heading and cells of a column, then those of the bounds if it has estimates."""
    values = [column.value(row) for row in rows]
    yield [column.heading, *(_plain(v.value if isinstance(v, Estimate) else v) for v in values)]
    if any(isinstance(value, Estimate) for value in values):
        for bound in ("low", "high"):
            yield [
                f"{column.heading}, {bound}",
                *(_plain(getattr(value, bound, float("nan"))) for value in values),
            ]


def _plain(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, int):
        return str(value)
    return format(value, DIGITS) if isfinite(value) else ""
