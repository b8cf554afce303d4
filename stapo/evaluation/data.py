"""Rows of the real benchmarks: from the Hub or a local directory, normalised and checked.

`STAPO_DATA_DIR` names a directory for machines without internet. A benchmark is looked for there as
`NAME.parquet`, `NAME.jsonl` (any spelling of its names, capitals and hyphens apart) and in the Hub's
layout, `OWNER/DATASET/**`; the files may be the Hub's, those of `stapo fetch`, or the publication of the
JustRL authors. Wherever the rows come from, their number and checksum must be those of the task.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from datasets import load_dataset

from stapo.canonical import canonical
from stapo.evaluation.grading import last_boxed
from stapo.hub import with_retries

DATA_DIR = "STAPO_DATA_DIR"
QUESTION_COLUMNS = ("problem", "question", "prompt")
ANSWER_COLUMNS = ("answer", "final_answer", "solution", "reward_model")
"""The first that a row has; a worked solution only counts by its box."""

Row = dict[str, str]


def benchmark_rows(
    *, hub: str, revision: str, split: str, names: list[str], rows: int, sha256: str
) -> list[Row]:
    """Return the rows of a benchmark, each with question and answer.

    Args:
        hub: dataset on the Hub.
        revision: of the dataset.
        split: of the dataset.
        names: under which a local file may stand.
        rows: expected number.
        sha256: expected checksum, as of `checksum`.

    Raises:
        ValueError: another number of rows, another checksum, or a row without question or answer.
        FileNotFoundError: `STAPO_DATA_DIR` is set and has no such benchmark.
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
            f"{names[0]}: expected rows of sha256 {sha256}, found {checksum(found)} in {source}"
        )
    return found


def local_file(directory: Path, hub: str, names: Iterable[str]) -> Path:
    """Return the file of a benchmark in a local directory.

    Raises:
        FileNotFoundError: none, with the names that were looked for.
    """
    wanted = {_plain(name) for name in names}
    files = sorted(p for p in directory.rglob("*") if p.suffix in (".parquet", ".jsonl"))
    for path in files:
        inside = path.relative_to(directory)
        if _plain(path.stem) in wanted or str(inside.parent).lower().startswith(hub.lower()):
            return path
    raise FileNotFoundError(
        f"{directory} ({DATA_DIR}): found no {' or '.join(sorted(names))} as .parquet or .jsonl, nor {hub}/"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _read(path: Path) -> Iterable[Mapping[str, Any]]:
    kind = "parquet" if path.suffix == ".parquet" else "json"
    loaded = load_dataset(kind, data_files=str(path), split="train")
    return cast("Iterable[Mapping[str, Any]]", loaded)


def normalise(row: Mapping[str, Any], place: str) -> Row:
    r"""Return question and answer of a row in any of the known layouts.

    White space at the ends goes, and a \boxed{} around the answer.

    Raises:
        ValueError: no column of a known name, or nothing in it.
    """
    question = next((_text(row[name]) for name in QUESTION_COLUMNS if row.get(name)), "")
    answer = ""
    for name in ANSWER_COLUMNS:
        if row.get(name) is not None:
            text = _text(row[name])
            boxed = last_boxed(text)
            # A worked solution without a box holds no answer; any other column is one.
            answer = boxed if boxed is not None else ("" if name == "solution" else text)
        if answer:
            break
    if not question.strip() or not answer.strip():
        raise ValueError(f"{place}: no question or no answer in columns {', '.join(row)}")
    return {"question": question.strip(), "answer": answer.strip()}


def _text(value: Any) -> str:
    """Return a cell's text: plain, the last turn of a conversation, or the only item of a list."""
    if isinstance(value, Mapping):
        return _text(value.get("ground_truth", value.get("content", "")))
    if isinstance(value, list | tuple):
        return _text(value[-1]) if value else ""
    return str(value)


def checksum(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of questions and answers; runs of white space count as one."""
    plain = [{name: " ".join(row[name].split()) for name in ("question", "answer")} for row in rows]
    return hashlib.sha256(canonical(plain).encode()).hexdigest()
