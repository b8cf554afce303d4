"""What the lm-eval tasks in `benchmarks/` call: rows, prompt, gold answer and grading."""

import hashlib
from typing import Any

from datasets import Dataset, DatasetDict

from stapo.evaluation.grading import grade_all
from stapo.models.arithmetic import benchmark_problems
from stapo.study import TASK_PREFIX, benchmark_definitions, canonical


def load_rows(*, builder: str, family: str, rows: int, sha256: str, **_: Any) -> DatasetDict:
    """Return the rows of a benchmark as split `test`, with columns question and answer.

    Args:
        builder: who makes the rows.
        family: which of the builder's.
        rows: expected number.
        sha256: expected checksum of the canonical JSON of all rows.

    Raises:
        ValueError: an unknown builder, or a wrong number or checksum.
    """
    if builder != "tiny-arithmetic":
        raise ValueError(f"{family}: unknown builder {builder!r}; known: tiny-arithmetic")
    found = [
        {"question": problem.question, "answer": str(problem.answer)}
        for problem in benchmark_problems(family, rows)
    ]
    checksum = hashlib.sha256(canonical(found).encode()).hexdigest()
    if checksum != sha256:
        raise ValueError(f"{family}: expected rows of sha256 {sha256}, found {checksum}")
    return DatasetDict({"test": Dataset.from_list(found)})


def benchmark_questions(benchmark: str) -> list[str]:
    """Return the questions of a benchmark of `benchmarks/`, for the overlap check."""
    metadata = benchmark_definitions()[benchmark.removeprefix(TASK_PREFIX)]["metadata"]
    return [str(row["question"]) for row in load_rows(**metadata)["test"]]


def question(doc: dict[str, str]) -> str:
    """Return the user's turn."""
    return doc["question"]


def gold(doc: dict[str, str]) -> str:
    """Return the reference answer."""
    return doc["answer"]


def all_samples(responses: list[list[str]], docs: list[dict[str, str]]) -> list[list[str]]:
    """Keep every response of every problem."""
    return responses


def process_results(doc: dict[str, str], results: list[list[str]]) -> dict[str, float]:
    """Return avg@N of one problem: the share of its N responses that are graded correct."""
    grades = grade_all([(gold(doc), response) for response in results[0]])
    return {"average_at_n": sum(grade.correct for grade in grades) / len(grades)}
