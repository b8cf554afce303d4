"""Rows of the real benchmarks, read from the Hub or a local directory.

`STAPO_DATA_DIR` is a directory for machines without internet, with the files of `stapo fetch` or of JustRL's
authors: `NAME.jsonl` or `NAME.parquet` for any name of a benchmark. `task.benchmark_rows` checks number and
checksum of the rows.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import load_dataset

from stapo.evaluation.boxes import last_boxed
from stapo.hub import with_retries
from stapo.study.files import Row

DATA_DIR = "STAPO_DATA_DIR"
QUESTION_COLUMNS = ("problem", "question", "prompt")
ANSWER_COLUMNS = ("answer", "final_answer", "solution", "reward_model")
"""Columns with the answer, by priority; of a worked solution, only the box is used."""


def hub_rows(hub: str, revision: str, split: str, names: list[str]) -> tuple[str, list[Row]]:
    """Return the source and the rows of a benchmark on the Hub, or of a local file with one of its names.

    Raises:
        ValueError: a row has no question or answer.
        FileNotFoundError: `STAPO_DATA_DIR` is set but does not contain the benchmark.
    """
    if directory := os.environ.get(DATA_DIR):
        path = local_file(Path(directory), names)
        if path is None:
            wanted = f"{directory} ({DATA_DIR}): no {' or '.join(names)} as .jsonl or .parquet"
            raise FileNotFoundError(f"{wanted}; run `stapo fetch` with internet access")
        source, kind = str(path), "parquet" if path.suffix == ".parquet" else "json"
        loaded = load_dataset(kind, data_files=source, split="train")
    else:
        source = f"{hub} at {revision}"
        loaded = with_retries(lambda: load_dataset(hub, revision=revision, split=split))
    return source, [normalise(row, f"{source}, row {i}") for i, row in enumerate(loaded)]


def local_file(directory: Path, names: list[str]) -> Path | None:
    """Return the file of a benchmark in a local directory, None if it is not there."""
    found = (directory / f"{name}{suffix}" for name in names for suffix in (".jsonl", ".parquet"))
    return next((path for path in found if path.is_file()), None)


def normalise(row: Mapping[str, Any], place: str) -> Row:
    r"""Return question and answer of a row in any of the known layouts.

    White space at the ends is removed, and a \boxed{} around the answer.

    Raises:
        ValueError: there is no column with a known name, or it is empty.
    """
    question = next((_text(row[name]) for name in QUESTION_COLUMNS if row.get(name)), "")
    answer = next((found for name in ANSWER_COLUMNS if (found := _answer(row, name))), "")
    if not question.strip() or not answer.strip():
        raise ValueError(f"{place}: no question or no answer in columns {', '.join(row)}")
    return {"question": question.strip(), "answer": answer.strip()}


def _answer(row: Mapping[str, Any], column: str) -> str:
    text = "" if row.get(column) is None else _text(row[column])
    # A worked solution without a box has no answer; other columns are the answer themselves.
    boxed = last_boxed(text)
    return boxed if boxed is not None else "" if column == "solution" else text


def _text(value: Any) -> str:
    """Return the text of a cell, which may be a string, a conversation (its last turn) or a list."""
    if isinstance(value, Mapping):
        return _text(value.get("ground_truth", value.get("content", "")))
    if isinstance(value, list | tuple):
        return _text(value[-1]) if value else ""
    return str(value)
