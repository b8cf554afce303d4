"""From responses to scores: one row per response, graded, with the identity of what made it."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.evaluation.grading import MAX_FAILURE_FRACTION, Grade, failure_fraction, grade_all
from stapo.evaluation.responses import published
from stapo.files import replace_file
from stapo.provenance import provenance
from stapo.study.schema import EngineSettings, Verifier
from stapo.tasks import benchmark_definitions

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


@dataclass(frozen=True)
class Judge:
    """A model that judges what the rules reject, and what runs it."""

    path: Path
    """Directory of the model."""
    settings: Verifier
    backend: str = "hf"
    engine: EngineSettings = field(default_factory=EngineSettings)


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
    verifier: Judge | None = None,
) -> float:
    """Grade every response, write the scores and return avg@N by the rules.

    Args:
        completions: JSON lines as `evaluation.generate` writes them.
        identity: fingerprint, study, checkpoint, decoding, benchmark, samples.
        output: parquet file, written by one rename.
        verifier: a model that judges what the rules reject.

    Answers on which the grader timed out or crashed count as wrong; the table says how many.

    Raises:
        DamagedFileError: responses are truncated, corrupt or not all there.
        RuntimeError: so many timeouts and crashes that it is the machine's, too many equal responses,
            or several engines.
    """
    rows_of = benchmark_definitions().get(identity.get("benchmark", ""), {}).get("metadata", {})
    problems = published(completions, rows_of.get("rows"), identity.get("samples"))
    if reason := refusal(problems):
        raise RuntimeError(f"{completions}: {reason}")
    engines = sorted({engine for problem in problems for engine in problem["engines"]})
    grades = iter(
        grades_list := grade_all(
            [(p["gold"], response) for p in problems for response in p["responses"]], progress=True
        )
    )
    _judge_failures(completions, grades_list)
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
    _add_verifier(rows, problems, verifier, identity.get("benchmark", ""))
    identity = {**identity, "engine": engines[0], "provenance": provenance()}
    metadata = {METADATA_KEY: json.dumps(identity, sort_keys=True)}
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata))
    with replace_file(output, "wb") as stream:
        pq.write_table(table, stream)
    return sum(grade.correct for grade in grades_list) / len(rows)


def _judge_failures(completions: Path, grades: list[Grade]) -> None:
    """Print a warning where the grader failed on an answer; refuse where it failed on too many.

    Each worker has judged known answers before its first, so that a few failures are those of the answers.
    Models write few answers that no machine can work out: a large share means that the workers are starved
    of memory or ended by somebody else, and zeros for that must not become a score.
    """
    counts = {kind: sum(g.verdict == kind for g in grades) for kind in ("timeout", "crash")}
    found = f"{completions}: of {len(grades)} responses {counts['timeout']} reached the grader's time limit "
    found += f"and {counts['crash']} its memory limit or ended it"
    if failure_fraction(grades) > MAX_FAILURE_FRACTION:
        raise RuntimeError(
            f"{found}, more than {MAX_FAILURE_FRACTION:.0%}: check memory and limits (`ulimit -a`) of this "
            "machine and score again; look at the answers if it is not at fault"
        )
    if any(counts.values()):
        sys.stderr.write(f"warning: {found}; they count as wrong\n")


def _bare_questions(problems: list[dict[str, Any]], benchmark: str) -> dict[int, str]:
    """Return the questions of a benchmark's rows; responses come with what the model was shown."""
    shown = [(problem["question"], problem["gold"]) for problem in problems]
    if benchmark in benchmark_definitions():
        from stapo.evaluation.task import rows_shown

        shown = [(row["question"], row["answer"]) for row in rows_shown(benchmark, shown)]
    return {problem["problem"]: text for problem, (text, _) in zip(problems, shown, strict=True)}


def _add_verifier(
    rows: list[dict[str, Any]],
    problems: list[dict[str, Any]],
    verifier: Judge | None,
    benchmark: str,
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
    questions = _bare_questions(problems, benchmark)
    asked = [i for i, row in enumerate(rows) if not row["correct"]]
    found = judge(
        verifier,
        [Question(questions[rows[i]["problem"]], rows[i]["gold"], responses[i]) for i in asked],
    )
    for i, judgement in zip(asked, found, strict=True):
        accepted = judgement.verdict == "accepted"
        rows[i] |= {
            "verifier": judgement.verdict,
            "verifier_cut": judgement.cut,
            "correct_with_verifier": accepted,
        }
