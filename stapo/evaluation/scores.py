"""From responses to scores: one row per response, graded, with the identity of what made it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.artifacts import provenance, read_jsonl, replace_file
from stapo.evaluation.grading import MAX_FAILURE_FRACTION, failure_fraction, grade_all

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
    ]
)


def score(completions: Path, identity: dict[str, Any], output: Path) -> float:
    """Grade every response, write the scores and return avg@N.

    Args:
        completions: JSON lines as `evaluation.generate` writes them.
        identity: fingerprint, study, checkpoint, decoding, benchmark, samples.
        output: parquet file, written by one rename.

    Raises:
        RuntimeError: too many answers on which the grader timed out or crashed.
    """
    problems = read_jsonl(completions)
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
        for sample, (tokens, truncated) in enumerate(
            zip(problem["num_tokens"], problem["truncated"], strict=True)
        ):
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
                }
            )
    metadata = {METADATA_KEY: json.dumps({**identity, "provenance": provenance()}, sort_keys=True)}
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata))
    with replace_file(output, "wb") as stream:
        pq.write_table(table, stream)
    return sum(grade.correct for grade in grades_list) / len(rows)
