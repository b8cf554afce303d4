"""Functions that the lm-eval tasks in `benchmarks/` call: rows, prompt, gold answer and grading."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stapo.evaluation.grading import grade_all
from stapo.models.worlds import benchmark_problems
from stapo.records.responses import AnsweredProblem
from stapo.study.files import Row, rows_checksum
from stapo.tasks import TASK_PREFIX, benchmark_definitions

if TYPE_CHECKING:
    from datasets import DatasetDict

INSTRUCTION = r" Please reason step by step, and put your final answer within \boxed{}."
"""The paper's words; the single space before them is JustRL's, the paper does not show it."""
PROMPTS = {"question": "", "math_question": INSTRUCTION}
"""Functions for `doc_to_text` of a task -> text that they append to the question."""
Task = Mapping[str, Any]
"""lm-eval task, from `benchmarks/` or of a study's own benchmark."""


def load_rows(**metadata: Any) -> "DatasetDict":
    """Return the rows of a benchmark as split `test`, as lm-eval needs them; see `benchmark_rows`."""
    from datasets import Dataset, DatasetDict

    return DatasetDict({"test": Dataset.from_list(benchmark_rows(metadata))})


def benchmark_rows(metadata: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a benchmark.

    Args:
        metadata: metadata of the task: `builder` and `family`, or `hub`, `revision`, `split` and `names`; the
            expected `rows` and `sha256`.

    Raises:
        ValueError: the builder is unknown, or the number of rows or the checksum differs.
    """
    count, sha256 = metadata["rows"], metadata["sha256"]
    if "hub" in metadata:
        # Imported here, since it loads `datasets`, which takes seconds.
        from stapo.evaluation.data import hub_rows

        source, found = hub_rows(
            *(metadata[name] for name in ("hub", "revision", "split", "names"))
        )
    elif metadata["builder"] == "tiny-arithmetic":
        source, problems = metadata["family"], benchmark_problems(metadata["family"], count)
        found = [{"question": one.question, "answer": str(one.answer)} for one in problems]
    else:
        raise ValueError(f"unknown builder {metadata['builder']!r}; known: tiny-arithmetic")
    if len(found) != count:
        raise ValueError(f"{source}: expected {count} rows, found {len(found)}")
    if (digest := rows_checksum(found)) != sha256:
        raise ValueError(f"{source}: expected rows with SHA-256 {sha256}, found {digest}")
    return found


def benchmark_questions(benchmark: str) -> list[str]:
    """Return the questions of a benchmark, for the overlap check."""
    definition = benchmark_definitions()[benchmark.removeprefix(TASK_PREFIX)]
    return [row["question"] for row in benchmark_rows(definition["metadata"])]


def asked_of(task: Task, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the question as a model reads it, and the gold answer, of each row of a benchmark."""
    instruction = _instruction(task)
    return [(row["question"] + instruction, row["answer"]) for row in rows]


def rows_of(task: Task, problems: Sequence[AnsweredProblem]) -> list[Row]:
    """Return the benchmark rows of answered problems, without the instruction after the question.

    Raises:
        ValueError: `doc_to_text` of the task is not a function of `PROMPTS`.
    """
    instruction = _instruction(task)
    return [
        {"question": one.question.removesuffix(instruction), "answer": one.gold} for one in problems
    ]


def are_rows_of(task: Task, problems: Sequence[AnsweredProblem]) -> bool:
    """Return whether questions and golds have the checksum of the benchmark's rows, which are not loaded."""
    return bool(rows_checksum(rows_of(task, problems)) == task["metadata"]["sha256"])


def _instruction(task: Task) -> str:
    function = str(task["doc_to_text"]).rpartition(".")[2]
    if function not in PROMPTS:
        known = ", ".join(PROMPTS)
        raise ValueError(f"{task['task']}: doc_to_text {function}: known are {known}")
    return PROMPTS[function]


def question(doc: Row) -> str:
    """Return the user turn."""
    return doc["question"]


def math_question(doc: Row) -> str:
    """Return the user turn of the paper's benchmarks."""
    return doc["question"] + INSTRUCTION


def gold(doc: Row) -> str:
    """Return the reference answer."""
    return doc["answer"]


def all_samples(responses: list[list[str]], docs: list[Row]) -> list[list[str]]:
    """Return every response of every problem."""
    return responses


def process_results(doc: Row, results: list[list[str]]) -> dict[str, float]:
    """Return avg@N of one problem: the share of its N responses that are graded correct."""
    grades = grade_all([(gold(doc), response) for response in results[0]])
    return {"average_at_n": sum(grade.correct for grade in grades) / len(grades)}
