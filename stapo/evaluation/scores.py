"""From responses to scores: one row per response, graded, with the identity of what made it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.artifacts import read_jsonl, replace_file
from stapo.evaluation.grading import MAX_FAILURE_FRACTION, failure_fraction, grade_all
from stapo.provenance import provenance
from stapo.schema import Verifier

METADATA_KEY = b"stapo"
SCHEMA = pa.schema(
    [
        ("problem", pa.int32()),
        ("sample", pa.int32()),
        ("gold", pa.string()),
        ("answer", pa.string()),
        ("verdict", pa.string()),
        ("correct", pa.bool_()),
        ("num_tokens", pa.int32()),
        ("truncated", pa.bool_()),
        ("duplicate", pa.bool_()),
        ("verifier", pa.string()),
        ("verifier_cut", pa.bool_()),
        ("correct_with_verifier", pa.bool_()),
    ]
)
LONG = 100
"""Tokens from which two equal responses to a problem are no chance."""
MAX_DUPLICATE_FRACTION = 0.01
"""Of the long responses; more means that samples were not drawn independently."""


def duplicates(responses: list[str]) -> list[bool]:
    """Return for each response to a problem whether an earlier one has the same text."""
    seen: set[str] = set()
    found = []
    for response in responses:
        found.append(response in seen)
        seen.add(response)
    return found


def long_duplicate_fraction(problems: list[dict[str, Any]]) -> float:
    """Return the share of duplicates among the long responses, 0 without any."""
    long = [
        duplicate
        for problem in problems
        for duplicate, tokens in zip(
            duplicates(problem["responses"]), problem["num_tokens"], strict=True
        )
        if tokens >= LONG
    ]
    return sum(long) / len(long) if long else 0.0


def refusal(problems: list[dict[str, Any]]) -> str:
    """Return why responses are not scored, nothing where they are."""
    copied = long_duplicate_fraction(problems)
    if copied > MAX_DUPLICATE_FRACTION:
        return (
            f"{copied:.1%} of the responses of {LONG} tokens and more are copies of another to the same "
            f"problem, more than {MAX_DUPLICATE_FRACTION:.0%}: the samples were not drawn independently"
        )
    engines = sorted({engine for problem in problems for engine in problem["engines"]})
    if len(engines) > 1:
        return (
            f"answered by {' and by '.join(engines)}, which are not to be mixed; remove the responses of "
            "one and generate them again"
        )
    return ""


def score(
    completions: Path,
    identity: dict[str, Any],
    output: Path,
    verifier: tuple[Path, Verifier] | None = None,
) -> float:
    """Grade every response, write the scores and return avg@N by the rules.

    Args:
        completions: JSON lines as `evaluation.generate` writes them.
        identity: fingerprint, study, checkpoint, decoding, benchmark, samples.
        output: parquet file, written by one rename.
        verifier: directory and settings of a model that judges what the rules reject.

    Raises:
        RuntimeError: too many answers on which the grader timed out or crashed, too many equal
            responses, or several engines.
    """
    problems = read_jsonl(completions)
    if not problems:
        raise RuntimeError(f"{completions}: no responses; `stapo generate` writes them")
    if reason := refusal(problems):
        raise RuntimeError(f"{completions}: {reason}")
    engines = sorted({engine for problem in problems for engine in problem["engines"]})
    grades = iter(
        grades_list := grade_all(
            [(p["gold"], response) for p in problems for response in p["responses"]], progress=True
        )
    )
    if failure_fraction(grades_list) > MAX_FAILURE_FRACTION:
        raise RuntimeError(
            f"{completions}: grading failed on {failure_fraction(grades_list):.1%} of the responses, "
            f"more than {MAX_FAILURE_FRACTION:.1%}; look at them before any score is believed"
        )
    rows = []
    for problem in problems:
        columns = (problem["num_tokens"], problem["truncated"], duplicates(problem["responses"]))
        for sample, (tokens, truncated, duplicate) in enumerate(zip(*columns, strict=True)):
            grade = next(grades)
            rows.append(
                {
                    "problem": problem["problem"],
                    "sample": sample,
                    "gold": problem["gold"],
                    "answer": grade.answer,
                    "verdict": grade.verdict,
                    "correct": grade.correct,
                    "num_tokens": tokens,
                    "truncated": truncated,
                    "duplicate": duplicate,
                }
            )
    _add_verifier(rows, problems, verifier)
    identity = {**identity, "engine": engines[0], "provenance": provenance()}
    metadata = {METADATA_KEY: json.dumps(identity, sort_keys=True)}
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata))
    with replace_file(output, "wb") as stream:
        pq.write_table(table, stream)
    return sum(grade.correct for grade in grades_list) / len(rows)


def _add_verifier(
    rows: list[dict[str, Any]],
    problems: list[dict[str, Any]],
    verifier: tuple[Path, Verifier] | None,
) -> None:
    """Add the verifier's verdicts; it is asked about nothing but what the rules reject."""
    for row in rows:
        row |= {
            "verifier": "not_asked",
            "verifier_cut": False,
            "correct_with_verifier": row["correct"],
        }
    if verifier is None:
        return
    from stapo.evaluation.verifier import Question, judge

    responses = [response for problem in problems for response in problem["responses"]]
    questions = {problem["problem"]: problem["question"] for problem in problems}
    asked = [i for i, row in enumerate(rows) if not row["correct"]]
    path, settings = verifier
    found = judge(
        path,
        [Question(questions[rows[i]["problem"]], rows[i]["gold"], responses[i]) for i in asked],
        settings,
    )
    for i, judgement in zip(asked, found, strict=True):
        accepted = judgement.verdict == "accepted"
        rows[i] |= {
            "verifier": judgement.verdict,
            "verifier_cut": judgement.cut,
            "correct_with_verifier": accepted,
        }
