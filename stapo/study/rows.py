"""Questions and answers in a file that a study names: JSON lines with `question` and `answer`."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stapo.canonical import canonical
from stapo.study.loader import StudyError, read_text, shown_path

COLUMNS = ("question", "answer")
Row = dict[str, str]
"""Question and answer."""


@dataclass(frozen=True)
class RowsFile:
    """A file with questions and answers, and the checksum of its content when the study was read."""

    path: Path
    sha256: str

    def read(self) -> list[Row]:
        """Return the rows; errors as of `placed`."""
        return list(self.placed().values())

    def placed(self) -> dict[str, Row]:
        """Return the rows by their place (`line 3`).

        Raises:
            StudyError: the file is missing, or has changed since the study was read.
        """
        rows = placed_rows(self.path)
        if checksum(rows.values()) != self.sha256:
            about = "its rows changed since the study was read; run snakemake again"
            raise StudyError([f"{self.path}: {about}"])
        return rows


def checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, with white space collapsed."""
    plain = [{name: " ".join(row[name].split()) for name in COLUMNS} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def placed_rows(path: Path, is_unique: bool = False) -> dict[str, Row]:
    """Return the rows of a file by their place (`line 3`), without white space at the ends of their texts.

    Args:
        path: JSON lines.
        is_unique: whether a repeated question is a fault: both would get the same responses.

    Raises:
        StudyError: one line for each fault, with its line.
    """
    rows: dict[str, Row] = {}
    first: dict[str, str] = {}
    faults = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            rows[place] = _row(line)
            asked = " ".join(rows[place]["question"].split())
            if is_unique and (earlier := first.setdefault(asked, place)) != place:
                raise ValueError(f"repeats the question of {earlier}; remove one of them")
        except (ValueError, RecursionError) as error:
            faults.append(f"{shown_path(path)}, {place}: {error}")
    if faults or not rows:
        raise StudyError(faults or [f"{shown_path(path)}: no rows"])
    return rows


def _row(line: str) -> Row:
    """Return question and answer of a line, which are text or numbers.

    Numbers are texts, as they are written, but whole ones with a point. Pandas writes a missing answer as
    NaN, and then the whole numbers of its column as 1.0: neither is what somebody meant as an answer.

    Raises:
        ValueError: it is no JSON object with these columns.
    """

    def number(text: str) -> str | float:
        return float(text) if float(text).is_integer() else text

    record = json.loads(line, parse_float=number, parse_int=str)
    if not isinstance(record, dict):
        raise ValueError("expected an object with columns")
    row = {}
    for key in COLUMNS:
        cell = record.get(key)
        row[key] = cell.strip() if isinstance(cell, str) else ""
        if not row[key]:
            found = f"found {cell!r}; its columns: {', '.join(record)}"
            raise ValueError(f"column {key!r}: expected text or a number, {found}")
    return row
