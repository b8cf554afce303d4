"""Rows of the real benchmarks: read from the Hub or a local directory, normalised and checked.

`STAPO_DATA_DIR` is a directory for machines without internet. A benchmark is searched there as
`NAME.parquet` or `NAME.jsonl` (for any of its names, ignoring case and punctuation) and in the Hub's
layout, `OWNER/DATASET/**`. The files may be those of the Hub, of `stapo fetch`, or of the JustRL authors.
In all cases, the number of rows and their checksum must be those of the task.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from datasets import load_dataset

from stapo.evaluation.grading import last_boxed
from stapo.hub import with_retries
from stapo.study.rows import Row, checksum

DATA_DIR = "STAPO_DATA_DIR"
QUESTION_COLUMNS = ("problem", "question", "prompt")
ANSWER_COLUMNS = ("answer", "final_answer", "solution", "reward_model")
"""Columns with the answer, by priority; of a worked solution, only the box is used."""


def benchmark_rows(
    *, hub: str, revision: str, split: str, names: list[str], rows: int, sha256: str
) -> list[Row]:
    """Return the rows of a benchmark, each with question and answer.

    Args:
        hub: dataset on the Hub.
        revision: revision of the dataset.
        split: split of the dataset.
        names: possible names of a local file.
        rows: expected number of rows.
        sha256: expected result of `checksum`.

    Raises:
        ValueError: the number of rows or the checksum differs, or a row has no question or answer.
        FileNotFoundError: `STAPO_DATA_DIR` is set but does not contain the benchmark.
    """
    directory = os.environ.get(DATA_DIR)
    if directory:
        path = local_file(Path(directory), hub, names)
        source, loaded = str(path), _read(path)
    else:
        source = f"{hub} at {revision}"
        loaded = with_retries(lambda: load_dataset(hub, revision=revision, split=split))
    found = [normalise(row, f"{source}, row {i}") for i, row in enumerate(loaded)]
    if len(found) != rows:
        raise ValueError(f"{names[0]}: expected {rows} rows, found {len(found)} in {source}")
    if checksum(found) != sha256:
        raise ValueError(
            f"{names[0]}: expected rows with SHA-256 {sha256}, found {checksum(found)} in {source}"
        )
    return found


def local_file(directory: Path, hub: str, names: Iterable[str]) -> Path:
    """Return the file of a benchmark in a local directory.

    Raises:
        FileNotFoundError: there is no such file; the message lists the names searched.
    """
    wanted = {_plain(name) for name in names}
    files = sorted(p for p in directory.rglob("*") if p.suffix in (".parquet", ".jsonl"))
    for path in files:
        inside = path.relative_to(directory)
        if _plain(path.stem) in wanted or str(inside.parent).lower().startswith(hub.lower()):
            return path
    raise FileNotFoundError(
        f"{directory} ({DATA_DIR}): no {' or '.join(sorted(names))} as .parquet or .jsonl, and no {hub}/; "
        "run `stapo fetch` with internet access"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _read(path: Path) -> Iterable[Mapping[str, Any]]:
    kind = "parquet" if path.suffix == ".parquet" else "json"
    loaded = load_dataset(kind, data_files=str(path), split="train")
    return cast("Iterable[Mapping[str, Any]]", loaded)


def normalise(row: Mapping[str, Any], place: str) -> Row:
    r"""Return question and answer of a row in any of the known layouts.

    White space at the ends is removed, and a \boxed{} around the answer.

    Raises:
        ValueError: there is no column with a known name, or it is empty.
    """
    question = next((_text(row[name]) for name in QUESTION_COLUMNS if row.get(name)), "")
    answer = ""
    for name in ANSWER_COLUMNS:
        if row.get(name) is not None:
            text = _text(row[name])
            boxed = last_boxed(text)
            # A worked solution without a box has no answer; other columns are the answer themselves.
            answer = boxed if boxed is not None else ("" if name == "solution" else text)
        if answer:
            break
    if not question.strip() or not answer.strip():
        raise ValueError(f"{place}: no question or no answer in columns {', '.join(row)}")
    return {"question": question.strip(), "answer": answer.strip()}


def _text(value: Any) -> str:
    """Return the text of a cell, which may be a string, a conversation (its last turn) or a list."""
    if isinstance(value, Mapping):
        return _text(value.get("ground_truth", value.get("content", "")))
    if isinstance(value, list | tuple):
        return _text(value[-1]) if value else ""
    return str(value)
