"""Questions and answers in a file that a study names: JSON lines or Parquet, two columns of any name."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
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
        rows = read_rows(self.path, self.question, self.answer)
        if checksum(rows) != self.sha256:
            about = "its rows changed since the study was read; run snakemake again"
            raise StudyError([f"{self.path}: {about}"])
        return rows


def checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers, with white space collapsed."""
    plain = [{name: " ".join(row[name].split()) for name in ("question", "answer")} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def read_rows(path: Path, question: str, answer: str) -> list[Row]:
    """Return the rows of a file, without white space at the ends of questions and answers.

    Args:
        path: JSON lines or Parquet.
        question: column of the questions.
        answer: column of the answers, which are text or numbers.

    Raises:
        StudyError: one line for each fault, with its line or row.
    """
    name = shown_path(path)
    if path.suffix not in KINDS_OF_FILE:
        raise StudyError([f"{name}: expected a file that ends in {' or '.join(KINDS_OF_FILE)}"])
    columns = {"question": question, "answer": answer}
    try:
        require_regular(path)
        records = list(_parquet(path) if path.suffix == ".parquet" else _json_lines(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StudyError([f"{name}: {reason}"]) from error
    known = dict.fromkeys(key for _, record in records for key in record)
    absent = [name for name in columns.values() if name not in known]
    if absent or not records:
        missing = f"no column {', '.join(map(repr, absent))}; its columns: {', '.join(known)}"
        raise StudyError([f"{name}: {shorten(missing, 300) if records else 'no rows'}"])
    rows, faults = [], []
    for place, record in records:
        row = {key: _text(record.get(name)) for key, name in columns.items()}
        empty = [repr(columns[key]) for key, text in row.items() if not text]
        if empty:
            faults.append(f"{name}, {place}: no text or number in column {', '.join(empty)}")
        rows.append({key: text or "" for key, text in row.items()})
    if faults:
        raise StudyError(faults)
    return rows


def repeated(rows: Iterable[Row], path: Path) -> list[str]:
    """Return a line for each row that repeats an earlier one: both would get the same responses."""
    first: dict[str, int] = {}
    found = []
    for number, row in enumerate(rows, 1):
        earlier = first.setdefault(checksum([row]), number)
        if earlier != number:
            found.append(
                f"{shown_path(path)}: row {number} repeats row {earlier}; remove one of them"
            )
    return found


def _text(cell: Any) -> str | None:
    """Return the text of a cell, None if it is neither text nor a number."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return None
    return str(cell).strip()


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `line N` and the object of each line that is not empty; numbers as they are written."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line, parse_float=str, parse_int=str)
            except (ValueError, RecursionError) as error:
                raise StudyError(
                    [f"{shown_path(path)}, line {number}: not JSON: {error}"]
                ) from error
            if not isinstance(record, dict):
                raise StudyError(
                    [f"{shown_path(path)}, line {number}: expected an object with columns"]
                )
            yield f"line {number}", record


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `row N` and the record of each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        records = pq.read_table(path).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StudyError([f"{shown_path(path)}: not a Parquet file: {reason}"]) from error
    for number, record in enumerate(records, 1):
        yield f"row {number}", record
