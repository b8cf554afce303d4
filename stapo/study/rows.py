"""Questions and answers in a file that a study names: JSON lines or Parquet, two columns of any name."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from stapo.canonical import canonical
from stapo.study.loader import StudyError, read_file, read_text, shown_path, strict_json
from stapo.text import shorten

Row = dict[str, str]
"""Question and answer."""

KINDS_OF_FILE = (".jsonl", ".parquet")
MAX_CHARACTERS = 100_000
"""Maximum length of a question or an answer."""


@dataclass(frozen=True)
class RowsFile:
    """A file with questions and answers, and the checksum of its content when the study was read."""

    path: Path
    question: str
    """Column of the questions."""
    answer: str
    """Column of the answers."""
    sha256: str

    def read(self) -> list[Row]:
        """Return the rows; errors as of `placed`."""
        return list(self.placed().values())

    def placed(self) -> dict[str, Row]:
        """Return the rows by their place (`line 3`).

        Raises:
            StudyError: the file is missing, or has changed since the study was read.
        """
        rows = placed_rows(self.path, self.question, self.answer)
        if checksum(rows.values()) != self.sha256:
            about = "its rows changed since the study was read; run snakemake again"
            raise StudyError([f"{self.path}: {about}"])
        return rows


def checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, with white space collapsed."""
    plain = [{name: " ".join(row[name].split()) for name in ("question", "answer")} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def placed_rows(path: Path, question: str, answer: str, is_unique: bool = False) -> dict[str, Row]:
    """Return the rows of a file by their place (`line 3`), without white space at the ends of their texts.

    Args:
        path: JSON lines or Parquet.
        question: column of the questions.
        answer: column of the answers, which are text or numbers.
        is_unique: whether a repeated question is a fault: both would get the same responses.

    Raises:
        StudyError: one line for each fault, with its line or row.
    """
    name = shown_path(path)
    if path.suffix not in KINDS_OF_FILE:
        raise StudyError([f"{name}: expected a file that ends in {' or '.join(KINDS_OF_FILE)}"])
    records, faults = (_parquet(path), {}) if path.suffix == ".parquet" else _json_lines(path)
    known = dict.fromkeys(key for record in records.values() for key in record)
    absent = [column for column in (question, answer) if column not in known]
    if not records and not faults:
        raise StudyError([f"{name}: no rows"])
    if records and absent:
        missing = f"no column {', '.join(map(repr, absent))}; its columns: {', '.join(known)}"
        raise StudyError([f"{name}: {shorten(missing, 300)}", *_at(name, faults)])
    rows: dict[str, Row] = {}
    first: dict[str, str] = {}
    for place, record in records.items():
        try:
            rows[place] = _row(record, question, answer)
        except ValueError as error:
            faults[place] = str(error)
            continue
        asked = " ".join(rows[place]["question"].split())
        if is_unique and (earlier := first.setdefault(asked, place)) != place:
            faults[place] = f"repeats the question of {earlier}; remove one of them"
    if faults:
        raise StudyError(_at(name, faults))
    return rows


def _at(name: str, faults: Mapping[str, str]) -> list[str]:
    """Return a line for each fault of a file, in the order of their places (`line 3`)."""
    ordered = sorted(faults, key=lambda place: int(place.rpartition(" ")[2]))
    return [f"{name}, {place}: {faults[place]}" for place in ordered]


def _row(record: Mapping[str, Any], question: str, answer: str) -> Row:
    """Return question and answer of a record.

    Raises:
        ValueError: they have faults.
    """
    row, faults = {}, []
    for key, column in {"question": question, "answer": answer}.items():
        row[key] = str(record.get(column)).strip()
        if fault := _fault(record.get(column), row[key]):
            faults.append(f"{column!r}: {fault}")
    if faults:
        raise ValueError("column " + ", ".join(faults))
    return row


def _fault(cell: Any, text: str) -> str:
    """Return why a cell has no text; empty if it has one.

    Pandas writes a missing answer as NaN, and then the whole numbers of its column as 1.0: neither is what
    somebody meant as an answer.
    """
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return "expected text or a number"
    if not text or (isinstance(cell, float) and not isfinite(cell)):
        return "no value; remove the row or fill it in"
    if isinstance(cell, float) and cell.is_integer():
        return f"{text} may have been a whole number; write {int(cell)}, or text"
    if character := next((one for one in text if "\ud800" <= one <= "\udfff"), None):
        return f"the character U+{ord(character):04X} is half of one; save it as UTF-8"
    return f"{len(text)} characters; at most {MAX_CHARACTERS}" * (len(text) > MAX_CHARACTERS)


def _json_lines(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return `line N` -> the object of each line that is not empty, and of others `line N` -> the fault.

    Numbers are texts, as they are written, but whole ones with a point.
    """

    def number(text: str) -> str | float:
        return float(text) if float(text).is_integer() else text

    records: dict[str, dict[str, Any]] = {}
    faults: dict[str, str] = {}
    for row, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = strict_json(line.rstrip(), parse_float=number, parse_int=str)
        except ValueError as error:
            faults[f"line {row}"] = str(error)
            continue
        if isinstance(record, dict):
            records[f"line {row}"] = record
        else:
            faults[f"line {row}"] = "expected an object with columns"
    return records, faults


def _parquet(path: Path) -> dict[str, dict[str, Any]]:
    """Return `row N` -> the record of each row.

    Raises:
        StudyError: it is no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = read_file(path)
    try:
        records = pq.read_table(pa.BufferReader(content)).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StudyError([f"{shown_path(path)}: not a Parquet file: {reason}"]) from error
    return {f"row {number}": record for number, record in enumerate(records, 1)}
