"""From responses to scores: one row per response, graded, with the identity of what made it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from stapo.evaluation.grading import MAX_FAILURE_FRACTION, Grade, failure_fraction, grade_all
from stapo.provenance import provenance
from stapo.records.responses import AnsweredProblem, read_responses
from stapo.records.scores import ScoreIdentity, ScoreRow, write_score_file
from stapo.records.verdicts import Opinion
from stapo.tasks import benchmark_definitions

LONG = 100
"""Tokens from which two equal responses to a problem are no chance."""
MAX_DUPLICATE_FRACTION = 0.01
"""Of the long responses; more means that samples were not drawn independently."""


@dataclass(frozen=True)
class Question:
    """A rejected response with what it answers; all three are text, hostile in `response`."""

    question: str
    """Without the instruction that the model under test was given."""
    gold: str
    response: str


@dataclass(frozen=True)
class Judgement:
    """What the verifier said of one response."""

    verdict: Opinion
    cut: bool
    """Whether the response was too long and lost its beginning."""


Judge = Callable[[Sequence[Question]], Sequence[Judgement]]


def duplicates(responses: Sequence[str]) -> list[bool]:
    """Return for each response to a problem whether an earlier one has the same text."""
    seen: set[str] = set()
    found = []
    for response in responses:
        found.append(response in seen)
        seen.add(response)
    return found


def long_duplicate_fraction(problems: Sequence[AnsweredProblem]) -> float:
    """Return the share of duplicates among the long responses, 0 without any."""
    long = [
        duplicate
        for problem in problems
        for duplicate, tokens in zip(duplicates(problem.responses), problem.num_tokens, strict=True)
        if tokens >= LONG
    ]
    return sum(long) / len(long) if long else 0.0


def engines_of(problems: Sequence[AnsweredProblem]) -> list[str]:
    """Return all engines that answered, sorted."""
    return sorted({engine for problem in problems for engine in problem.engines})


def refusal(problems: Sequence[AnsweredProblem]) -> str:
    """Return why responses are not scored, nothing where they are."""
    copied = long_duplicate_fraction(problems)
    if copied > MAX_DUPLICATE_FRACTION:
        return (
            f"{copied:.1%} of the responses of {LONG} tokens and more are copies of another to the same "
            f"problem, more than {MAX_DUPLICATE_FRACTION:.0%}: the samples were not drawn independently"
        )
    engines = engines_of(problems)
    if len(engines) > 1:
        return (
            f"answered by {' and by '.join(engines)}, which are not to be mixed; remove the responses of "
            "one and generate them again"
        )
    return ""


def gold_and_responses(problems: Sequence[AnsweredProblem]) -> list[tuple[str, str]]:
    """Return gold answer and text of every response, in the order of the rows."""
    return [(problem.gold, text) for problem in problems for text in problem.responses]


def score_rows(problems: Sequence[AnsweredProblem], grades: Sequence[Grade]) -> list[ScoreRow]:
    """Return the scores of responses by the rules alone, sample by sample, problem by problem.

    Args:
        problems: with their responses.
        grades: of `gold_and_responses`.
    """
    graded = iter(grades)
    rows = []
    for problem in problems:
        repeated = duplicates(problem.responses)
        for sample, response in enumerate(problem.samples()):
            grade = next(graded)
            rows.append(
                ScoreRow(
                    problem=problem.problem,
                    sample=sample,
                    gold=problem.gold,
                    answer=grade.answer,
                    verdict=grade.verdict,
                    correct=grade.correct,
                    num_tokens=response.num_tokens,
                    truncated=response.truncated,
                    duplicate=repeated[sample],
                    verifier="not_asked",
                    verifier_cut=False,
                    correct_with_verifier=grade.correct,
                )
            )
    return rows


def with_judgement(row: ScoreRow, judgement: Judgement) -> ScoreRow:
    """Return the row of a response that the rules reject, with what the verifier said of it."""
    return replace(
        row,
        verifier=judgement.verdict,
        verifier_cut=judgement.cut,
        correct_with_verifier=judgement.verdict == "accepted",
    )


def score(
    completions: Path, identity: Mapping[str, Any], output: Path, judge: Judge | None = None
) -> float:
    """Grade every response, write the scores and return avg@N by the rules.

    Answers on which the grader timed out or crashed count as wrong; the table says how many.

    Args:
        completions: published responses.
        identity: what the scores say of themselves, engine and provenance apart.
        output: parquet file, written atomically.
        judge: asked about what the rules reject.

    Raises:
        DamagedFileError: responses are truncated, corrupt or not all there.
        RuntimeError: so many timeouts and crashes that it is the machine's, too many equal responses,
            or several engines.
    """
    benchmark = identity.get("benchmark", "")
    rows_of_task = benchmark_definitions().get(benchmark, {}).get("metadata", {}).get("rows")
    problems = read_responses(completions, rows_of_task, identity.get("samples"))
    if reason := refusal(problems):
        raise RuntimeError(f"{completions}: {reason}")
    grades = grade_all(gold_and_responses(problems), progress=True)
    _judge_failures(completions, grades)
    rows = score_rows(problems, grades)
    if judge is not None:
        rows = _judged(rows, problems, benchmark, judge)
    found = {**identity, "engine": engines_of(problems)[0], "provenance": provenance()}
    write_score_file(output, rows, cast("ScoreIdentity", found))
    return sum(row.correct for row in rows) / len(rows)


def _judge_failures(completions: Path, grades: Sequence[Grade]) -> None:
    """Print a warning where the grader failed on an answer; refuse where it failed on too many.

    Each worker has judged known answers before its first, so that a few failures are those of the answers.
    Models write few answers that no machine can work out: a large share means that the workers are starved
    of memory or ended by somebody else, and zeros for that must not become a score.
    """
    timeouts = sum(grade.verdict == "timeout" for grade in grades)
    crashes = sum(grade.verdict == "crash" for grade in grades)
    found = (
        f"{completions}: of {len(grades)} responses {timeouts} reached the grader's time limit "
        f"and {crashes} its memory limit or ended it"
    )
    if failure_fraction(grades) > MAX_FAILURE_FRACTION:
        raise RuntimeError(
            f"{found}, more than {MAX_FAILURE_FRACTION:.0%}: check memory and limits (`ulimit -a`) of this "
            "machine and score again; look at the answers if it is not at fault"
        )
    if timeouts or crashes:
        sys.stderr.write(f"warning: {found}; they count as wrong\n")


def _judged(
    rows: Sequence[ScoreRow], problems: Sequence[AnsweredProblem], benchmark: str, judge: Judge
) -> list[ScoreRow]:
    """Return the rows with the verifier's verdicts; it is asked about nothing but what the rules reject."""
    questions = [
        Question(question, problem.gold, text)
        for question, problem in zip(_bare_questions(problems, benchmark), problems, strict=True)
        for text in problem.responses
    ]
    asked = [i for i, row in enumerate(rows) if not row.correct]
    judgements = judge([questions[i] for i in asked])
    found = dict(zip(asked, judgements, strict=True))
    return [with_judgement(row, found[i]) if i in found else row for i, row in enumerate(rows)]


def _bare_questions(problems: Sequence[AnsweredProblem], benchmark: str) -> list[str]:
    """Return the questions of a benchmark's rows; responses come with what the model was shown."""
    if benchmark not in benchmark_definitions():
        return [problem.question for problem in problems]
    # It loads `datasets`, which takes seconds and is of no use without a verifier.
    from stapo.evaluation.task import rows_of

    return [row["question"] for row in rows_of(benchmark, problems)]
