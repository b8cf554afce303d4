"""Questions and answers in a file that a study names: JSON lines or Parquet, two columns of any name."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.canonical import canonical
from stapo.study.loader import StudyError, require_regular, shown_path
from stapo.text import shorten

Row = dict[str, str]
"""Question and answer."""

KINDS_OF_FILE = (".jsonl", ".parquet")


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
        """Return the rows.

        Raises:
            StudyError: the file is missing, or has changed since the study was read.
        """
        return list(self.placed().values())

    def placed(self) -> dict[str, Row]:
        """Return the rows by their place (`line 3`); errors as of `read`."""
        rows = placed_rows(self.path, self.question, self.answer)
        if checksum(rows.values()) != self.sha256:
            about = "its rows changed since the study was read; run snakemake again"
            raise StudyError([f"{self.path}: {about}"])
        return rows


def checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, with white space collapsed."""
    plain = [{name: " ".join(row[name].split()) for name in ("question", "answer")} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def read_rows(path: Path, question: str, answer: str) -> list[Row]:
    """Return the rows of a file; arguments and errors as of `placed_rows`."""
    return list(placed_rows(path, question, answer).values())


def placed_rows(path: Path, question: str, answer: str, unique: bool = False) -> dict[str, Row]:
    """Return the rows of a file by their place (`line 3`), without white space at the ends of their texts.

    Args:
        path: JSON lines or Parquet.
        question: column of the questions.
        answer: column of the answers, which are text or numbers.
        unique: whether a row that repeats an earlier one is a fault: both would get the same responses.

    Raises:
        StudyError: one line for each fault, with its line or row.
    """
    name = shown_path(path)
    if path.suffix not in KINDS_OF_FILE:
        raise StudyError([f"{name}: expected a file that ends in {' or '.join(KINDS_OF_FILE)}"])
    columns = {"question": question, "answer": answer}
    try:
        require_regular(path)
        records, faults = _parquet(path) if path.suffix == ".parquet" else _json_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StudyError([f"{name}: {reason}"]) from error
    known = dict.fromkeys(key for record in records.values() for key in record)
    absent = [name for name in columns.values() if name not in known]
    if not records and not faults:
        raise StudyError([f"{name}: no rows"])
    if records and absent:
        missing = f"no column {', '.join(map(repr, absent))}; its columns: {', '.join(known)}"
        raise StudyError([f"{name}: {shorten(missing, 300)}", *_at(name, faults)])
    rows = {}
    for place, record in records.items():
        row = {key: _text(record.get(name)) for key, name in columns.items()}
        empty = [repr(columns[key]) for key, text in row.items() if not text]
        if empty:
            faults[place] = f"no text or number in column {', '.join(empty)}"
        else:
            rows[place] = {key: text or "" for key, text in row.items()}
    if unique:
        faults |= _repeated(rows)
    if faults:
        raise StudyError(_at(name, faults))
    return rows


def _at(name: str, faults: Mapping[str, str]) -> list[str]:
    """Return a line for each fault of a file, in the order of their places (`line 3`)."""
    ordered = sorted(faults, key=lambda place: int(place.rpartition(" ")[2]))
    return [f"{name}, {place}: {faults[place]}" for place in ordered]


def _repeated(rows: Mapping[str, Row]) -> dict[str, str]:
    """Return a fault for each row that repeats an earlier one."""
    first: dict[str, str] = {}
    found = {}
    for place, row in rows.items():
        earlier = first.setdefault(checksum([row]), place)
        if earlier != place:
            found[place] = f"repeats {earlier}; remove one of them"
    return found


def _text(cell: Any) -> str | None:
    """Return the text of a cell, None if it is neither text nor a number."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return None
    return str(cell).strip()


def _json_lines(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return `line N` -> the object of each line that is not empty, and of others `line N` -> the fault.

    Numbers are texts, as they are written.
    """
    records: dict[str, dict[str, Any]] = {}
    faults: dict[str, str] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"line {number}"
            try:
                record = json.loads(line.rstrip(), parse_float=str, parse_int=str)
            except json.JSONDecodeError as error:
                faults[place] = f"not JSON: {error.msg}, at column {error.colno}"
                continue
            except (ValueError, RecursionError) as error:
                faults[place] = f"not JSON: {error}"
                continue
            if isinstance(record, dict):
                records[place] = record
            else:
                faults[place] = "expected an object with columns"
    return records, faults


def _parquet(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return `row N` -> the record of each row; there are no faults of single rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        records = pq.read_table(path).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StudyError([f"{shown_path(path)}: not a Parquet file: {reason}"]) from error
    return {f"row {number}": record for number, record in enumerate(records, 1)}, {}
