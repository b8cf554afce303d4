"""Functions that the lm-eval tasks in `benchmarks/` call: rows, prompt, gold answer and grading.

Rows come from the Hub, or from the directory in `STAPO_DATA_DIR`, such as the files of JustRL's authors:
`NAME.jsonl` or `NAME.parquet` for any name of a benchmark. Their number and checksum are always checked.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stapo.suite import domains
from stapo.suite.answers import Reader, Setting, built_in, is_built_in, last_boxed
from stapo.suite.evaluation.grading import grade_all
from stapo.suite.hub import HubError, data_set
from stapo.suite.models.worlds import benchmark_problems
from stapo.suite.records.responses import AnsweredProblem
from stapo.suite.study import StudyError
from stapo.suite.study.files import Row, rows_checksum
from stapo.suite.study.functions import load, own_code
from stapo.suite.tasks import INSTRUCTION, WRONG_READER, instruction_of, problems_of

if TYPE_CHECKING:
    from datasets import DatasetDict

DATA_DIR = "STAPO_DATA_DIR"
QUESTION_COLUMNS = ("problem", "question", "prompt")
ANSWER_COLUMNS = ("answer", "final_answer", "solution", "reward_model")
"""Columns with the answer, by priority; of a worked solution, only the box is used."""
GENERATED = ("tiny-arithmetic", "word-problems")
"""Builders of benchmarks, in task files."""
Task = Mapping[str, Any]
"""lm-eval task, from `benchmarks/` or of a study's own benchmark."""


def load_rows(**metadata: Any) -> "DatasetDict":
    """Return the rows of a benchmark as split `test`, as lm-eval needs them; see `benchmark_rows`."""
    from datasets import Dataset, DatasetDict

    if not is_built_in(answer := metadata.get("answer", "boxed")):
        raise ValueError(WRONG_READER)
    # lm-eval gives the functions of a task a row, and no metadata.
    told, more = json.dumps(answer), metadata.get("instruction", "")
    rows = [
        {"question": row["question"] + more, "answer": row["answer"], "reader": told}
        for row in benchmark_rows(metadata)
    ]
    return DatasetDict({"test": Dataset.from_list(rows)})


def benchmark_rows(metadata: Mapping[str, Any]) -> list[Row]:
    """Return the rows that a task's metadata describe (benchmarks/README.md); all are checked."""
    count, sha256 = metadata["rows"], metadata["sha256"]
    if tasks := metadata.get("reasoning_gym"):
        try:
            return domains.rows(tasks, count, is_training=False)
        except ValueError as error:
            raise StudyError([f"reasoning_gym, {', '.join(tasks)}: {error}"]) from error
    if "hub" in metadata:
        hub, revision, split = (metadata[name] for name in ("hub", "revision", "split"))
        source, rows = _hub_rows(hub, revision, split, metadata["names"], metadata.get("subset"))
    elif metadata["builder"] in GENERATED:
        source, problems = metadata["family"], benchmark_problems(metadata["family"], count)
        rows = [
            {"question": problem.question, "answer": str(problem.answer)} for problem in problems
        ]
    else:
        known = ", ".join(GENERATED)
        raise ValueError(f"unknown builder {metadata['builder']!r}; known: {known}")
    if len(rows) != count:
        raise ValueError(f"{source}: expected {count} rows, found {len(rows)}")
    digest = rows_checksum(rows)
    if sha256 is None:
        hint = "stated nowhere; write it as sha256 of the benchmark, before you evaluate"
        print(f"{source}: SHA-256 {digest}: {hint}")  # noqa: T201
    elif digest != sha256:
        raise ValueError(f"{source}: expected rows with SHA-256 {sha256}, found {digest}")
    return rows[: metadata.get("first")]


def _hub_rows(
    hub: str, revision: str, split: str, names: list[str], subset: str | None
) -> tuple[str, list[Row]]:
    """Return the source and the rows of a benchmark on the Hub, or of a local file with one of its names."""
    if directory := os.environ.get(DATA_DIR):
        path = _local_file(Path(directory), names)
        if path is None:
            wanted = f"no {' or '.join(names)} as .jsonl, .parquet or a folder with test.parquet"
            raise FileNotFoundError(f"{directory} ({DATA_DIR}): {wanted}")
        source, kind = str(path), "parquet" if path.suffix == ".parquet" else "json"
        # Imported here, since it takes seconds.
        from datasets import load_dataset

        loaded = load_dataset(kind, data_files=source, split="train")
    else:
        source = f"{hub} at {revision}"
        loaded = data_set(hub, subset, revision, split)
    return source, [normalise(row, f"{source}, row {i}") for i, row in enumerate(loaded)]


def _local_file(directory: Path, names: list[str]) -> Path | None:
    """Return the file of a benchmark in a directory, as in JustRL's too: `MATH-500/test.parquet`."""
    plain = {name.replace("-", "") for name in names}
    entries = sorted(directory.iterdir(), key=Path.is_dir) if directory.is_dir() else []
    for entry in entries:
        is_file = entry.suffix in (".jsonl", ".parquet")
        if (entry.stem if is_file else entry.name).replace("-", "") in plain:
            path = entry if is_file else entry / "test.parquet"
            if path.is_file():
                return path
    return None


def normalise(row: Mapping[str, Any], place: str) -> Row:
    r"""Return question and answer, without a \boxed{} around it, of a row with columns of any known names."""
    question = next((_text(row[name]) for name in QUESTION_COLUMNS if row.get(name)), "")
    answer = next((text for name in ANSWER_COLUMNS if (text := _answer(row, name))), "")
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


def reader_of(answer: Setting, sha256: str | None) -> Reader:
    """Return the reader of a setting of a study, and the checksum of its file if it is a function."""
    if is_built_in(answer):
        return built_in(answer)
    reference = str(answer)
    function = load(reference, sha256 or "")

    def read(_: str, response: str) -> str | None:
        with own_code(reference):
            result = function(response)
            if not isinstance(result, str | None):
                raise TypeError(f"expected a text or None, found {type(result).__name__}")
        return result

    return replace(built_in("boxed"), read=read)


def asked_of(task: Task, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the question as a model reads it, and the gold answer, of each row of a benchmark."""
    instruction = instruction_of(task)
    return [(row["question"] + instruction, row["answer"]) for row in rows]


def rows_of(task: Task, problems: Sequence[AnsweredProblem]) -> list[Row]:
    """Return the benchmark rows of answered problems, without the instruction after the question."""
    instruction = instruction_of(task)
    return [
        {"question": problem.question.removesuffix(instruction), "answer": problem.gold}
        for problem in problems
    ]


def are_rows_of(task: Task, problems: Sequence[AnsweredProblem]) -> bool:
    """Return whether questions and golds have the checksum of the benchmark's rows.

    These are loaded, or made again, for what has no checksum: the first rows of a benchmark, and tasks of
    reasoning-gym, whose golds a verifier may evaluate. Where the task file has
    none either, any rows are those.
    """
    expected, metadata = task["metadata"]["sha256"], task["metadata"]
    if "first" in metadata or "reasoning_gym" in metadata:
        try:
            expected = rows_checksum(benchmark_rows(metadata))
        except (HubError, OSError) as error:
            cause = f"the benchmark is needed to check its first {problems_of(task)} rows"
            raise ValueError(f"{cause}: {error}") from error
    return expected is None or bool(rows_checksum(rows_of(task, problems)) == expected)


def question(doc: Row) -> str:
    """Return the user turn."""
    return doc["question"]


def math_question(doc: Row) -> str:
    """Return the user turn of the paper's benchmarks."""
    return doc["question"] + INSTRUCTION


def gold(doc: Row) -> str:
    """Return the reference answer."""
    return _reader(doc).gold(doc["answer"])


def _reader(doc: Row) -> Reader:
    return built_in(json.loads(doc["reader"]))


def all_samples(responses: list[list[str]], docs: list[Row]) -> list[list[str]]:
    """Return every response of every problem."""
    return responses


def process_results(doc: Row, results: list[list[str]]) -> dict[str, float]:
    """Return avg@N of one problem: the share of its N responses that are graded correct."""
    grades = grade_all([(gold(doc), response) for response in results[0]], _reader(doc))
    return {"average_at_n": sum(grade.correct for grade in grades) / len(grades)}
