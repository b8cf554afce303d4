"""Whether scores follow from responses, and responses answer the benchmark that they name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from stapo import artifacts
from stapo.evaluation.grading import grade_all
from stapo.evaluation.scores import duplicates
from stapo.evaluation.task import are_rows_of
from stapo.study import Study, benchmark_definitions

FOLLOWING = (
    "problem", "sample", "gold", "answer", "verdict", "correct", "num_tokens", "truncated", "duplicate",
)  # fmt: skip
"""Columns of a score file that follow from the responses by the rules alone."""
JUDGED = ("correct", "verifier", "correct_with_verifier")
"""What a verifier said is taken as stated; that it was counted as it should be is checked."""


def score_errors(study: Study, root: Path) -> Iterator[str]:
    """Yield a line for each cell whose responses or scores are not what they should be.

    Args:
        study: whose cells.
        root: where `results/` lies.
    """
    for decoding in study.run.decodings:
        for checkpoint in study.checkpoints():
            at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
            for benchmark in study.evaluated():
                scores = artifacts.SCORES.format(**at, benchmark=benchmark)
                responses = artifacts.COMPLETIONS.format(**at, benchmark=benchmark)
                try:
                    problems = artifacts.read_jsonl(root / responses)
                    fault = _response_fault(study, benchmark, problems)
                    where = responses if fault else scores
                    fault = fault or _score_fault(study, root / scores, problems)
                except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                    where, fault = responses, f"or its scores are unreadable: {error!r}"
                if fault:
                    yield f"{where}: {fault}"


def _response_fault(study: Study, benchmark: str, problems: list[dict[str, Any]]) -> str:
    rows = benchmark_definitions()[benchmark]["metadata"]["rows"]
    samples = study.benchmarks[benchmark].samples
    if [problem["problem"] for problem in problems] != list(range(rows)):
        return f"not the {rows} problems of {benchmark} in their order"
    columns = ("responses", "num_tokens", "truncated")
    if any(len(problem[name]) != samples for problem in problems for name in columns):
        return f"not {samples} samples of every problem"
    if not are_rows_of(benchmark, [(p["question"], p["gold"]) for p in problems]):
        return f"questions or golds are not those of {benchmark}"
    return ""


def _score_fault(study: Study, scores: Path, problems: list[dict[str, Any]]) -> str:
    rows = pq.read_table(scores, columns=list(FOLLOWING)).to_pylist()
    found = _following(problems)
    differing = sum(a != b for a, b in zip(rows, found, strict=False)) + abs(len(rows) - len(found))
    if differing:
        return f"{differing} of {len(rows)} rows are not what the responses get"
    asked = study.evaluation.verifier is not None
    for row in pq.read_table(scores, columns=list(JUDGED)).to_pylist():
        if row["correct"] or not asked:
            right = row["verifier"] == "not_asked"
        else:
            right = row["verifier"] != "not_asked"
        accepted = row["correct"] or row["verifier"] == "accepted"
        if not right or row["correct_with_verifier"] != accepted:
            return "what the verifier said is not what is counted"
    return ""


def _following(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that the responses to one benchmark get now."""
    answers = [(problem["gold"], text) for problem in problems for text in problem["responses"]]
    grades = iter(grade_all(answers))
    rows = []
    for problem in problems:
        columns = (problem["num_tokens"], problem["truncated"], duplicates(problem["responses"]))
        for sample, (tokens, truncated, duplicate) in enumerate(zip(*columns, strict=True)):
            grade = next(grades)
            graded = (grade.answer, grade.verdict, grade.correct)
            values = (
                problem["problem"], sample, problem["gold"], *graded, tokens, truncated, duplicate,
            )  # fmt: skip
            rows.append(dict(zip(FOLLOWING, values, strict=True)))
    return rows
