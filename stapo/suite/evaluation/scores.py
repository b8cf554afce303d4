"""Scoring of responses: one row per response with its grade, and metadata on its origin."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from stapo.suite.answers import READERS, Reader
from stapo.suite.evaluation.grading import Grade, grade_answers
from stapo.suite.evaluation.task import rows_of
from stapo.suite.provenance import provenance
from stapo.suite.records.responses import (
    MIXED_DEVICES,
    AnsweredProblem,
    are_mixed,
    read_responses,
)
from stapo.suite.records.scores import FAILURES, Opinion, ScoreIdentity, ScoreRow, write_score_file
from stapo.suite.tasks import problems_of

LONG = 100
"""Number of tokens from which equal responses to a problem are not a coincidence."""
MAX_DUPLICATE_FRACTION = 0.01
"""Share of duplicates among long responses above which there is a warning."""
MAX_CRASH_FRACTION = 0.05
"""Share of crashes above which an easy answer is graded too: if it crashes, the cause is the machine."""
EASY = "1", "1"
"""Gold answer and answer."""


@dataclass(frozen=True)
class Question:
    """A rejected response with its problem; `response` is untrusted text."""

    question: str
    """Question without the instruction to the evaluated model."""
    gold: str
    response: str


@dataclass(frozen=True)
class Judgement:
    """The verifier's judgement of one response."""

    verdict: Opinion
    cut: bool
    """Whether the response was too long and its beginning was removed."""


Judge = Callable[[Sequence[Question]], Sequence[Judgement]]


def duplicates(responses: Sequence[str]) -> list[bool]:
    """Return for each response to a problem whether an earlier one has the same text."""
    return [text in responses[:sample] for sample, text in enumerate(responses)]


def engines_of(problems: Sequence[AnsweredProblem]) -> list[str]:
    """Return all engines of the responses, sorted."""
    return sorted({engine for problem in problems for engine in problem.engines})


def refusal(problems: Sequence[AnsweredProblem], devices: str = "same") -> str:
    """Return why responses must not be scored, empty if they may be."""
    engines = engines_of(problems)
    if not are_mixed(engines, devices):
        return ""
    cause = f"answered by {' and by '.join(engines)}, which must not be mixed"
    return f"{cause}; remove the responses of one and generate them again, or {MIXED_DEVICES}"


def copies(problems: Sequence[AnsweredProblem]) -> float:
    """Return the share of copies of another response to the same problem among the long responses."""
    long = [
        duplicate
        for problem in problems
        for duplicate, tokens in zip(duplicates(problem.responses), problem.num_tokens, strict=True)
        if tokens >= LONG
    ]
    return sum(long) / max(len(long), 1)


def with_golds(problems: Sequence[AnsweredProblem], reader: Reader) -> list[AnsweredProblem]:
    """Return the problems with their gold answers, where rows have worked solutions."""
    return [replace(problem, gold=reader.gold(problem.gold)) for problem in problems]


def gold_and_answers(
    problems: Sequence[AnsweredProblem], reader: Reader
) -> list[tuple[str, str | None]]:
    """Return gold answer and answer of every response, in the order of the score rows."""
    return [
        (problem.gold, reader.read(problem.gold, text))
        for problem in problems
        for text in problem.responses
    ]


def score_rows(problems: Sequence[AnsweredProblem], grades: Sequence[Grade]) -> list[ScoreRow]:
    """Return the score rows by the grades of `gold_and_answers`, ordered by problem and sample."""
    left = iter(grades)
    return [
        ScoreRow(
            problem=problem.problem,
            sample=sample,
            gold=problem.gold,
            answer=grade.answer,
            verdict=grade.verdict,
            correct=grade.correct,
            num_tokens=response.num_tokens,
            truncated=response.truncated,
            duplicate=repeated,
            verifier="not_asked",
            verifier_cut=False,
            correct_with_verifier=grade.correct,
        )
        for problem in problems
        for sample, (response, repeated, grade) in enumerate(
            zip(problem.samples(), duplicates(problem.responses), left, strict=False)
        )
    ]


def with_judgement(row: ScoreRow, judgement: Judgement) -> ScoreRow:
    """Return the row of a response that the rules reject, with the verifier's judgement."""
    row = replace(row, verifier=judgement.verdict, verifier_cut=judgement.cut)
    return replace(row, correct_with_verifier=judgement.verdict == "accepted")


def score(
    completions: Path,
    identity: Mapping[str, Any],
    output: Path,
    judge: Judge | None = None,
    task: Mapping[str, Any] | None = None,
    reader: Reader = READERS["boxed"],
    reward: Reader | None = None,
    devices: str = "same",
) -> float:
    """Grade what the reader finds in every response, write the scores and return avg@N by the rules.

    Answers on which the grader timed out or crashed count as wrong. The tables report their share, and that
    of copies, which a collapsed policy makes, and samples that are not independent. By the lm-eval task of
    the benchmark, problems are counted, and the verifier reads questions without instruction. With the reader
    of a training's reward, responses are counted on which reward and grader differ. Responses of several
    engines are refused, but those that differ in the device where `devices` are `mixed`.
    """
    rows = problems_of(task) if task else None
    answered = read_responses(completions, rows, identity.get("samples"))
    problems = with_golds(answered, reader)
    if reason := refusal(problems, devices):
        raise RuntimeError(f"{completions}: {reason}")
    if (copied := copies(problems)) > MAX_DUPLICATE_FRACTION:
        finding = f"{copied:.1%} of the responses of {LONG} tokens and more are copies of another"
        cause = "the policy has collapsed, or the samples were not drawn independently"
        sys.stderr.write(f"warning: {completions}: {finding} to the same problem: {cause}\n")
    answers = gold_and_answers(problems, reader)
    grades = grade_answers(answers, verifier=reader.verifier, progress=True)
    _check_failures(completions, grades)
    scored = score_rows(problems, grades)
    if judge is not None:
        scored = _judged(scored, problems, task, judge)
    if differing := sum(grade.correct != grade.plain for grade in grades):
        finding = f"{differing} of {len(grades)} verdicts differ from math-verify's"
        sys.stderr.write(f"{completions}: {finding}\n")
    properties = {
        **identity,
        "engine": " and ".join(engines_of(problems)),
        "provenance": provenance(),
    }
    properties["differs_from_math_verify"] = differing
    if reward:
        properties["differs_from_reward"] = beside_reward(answered, grades, reward)
    write_score_file(output, scored, cast("ScoreIdentity", properties))
    return sum(row.correct for row in scored) / len(scored)


def beside_reward(
    problems: Sequence[AnsweredProblem], grades: Sequence[Grade], reward: Reader
) -> dict[str, int]:
    """Return how many responses the grader accepts and the training reward does not, and the reverse."""
    earned = [
        reward.is_right(reward.gold(problem.gold), text)
        for problem in problems
        for text in problem.responses
    ]
    both = Counter(zip((grade.correct for grade in grades), earned, strict=True))
    return {"accepted": both[True, False], "rewarded": both[False, True]}


def _check_failures(completions: Path, grades: Sequence[Grade]) -> None:
    """Print a warning if the grader failed on some answers; raise an error if it also fails on an easy one.

    An answer that needs too much time or memory is no fault of the machine: a model may write a tower of
    exponents every time. Where workers lack memory for anything, this must not become a score of zero.
    """
    number = Counter(grade.verdict for grade in grades)
    failed, crashed = sum(number[verdict] for verdict in FAILURES), number["crash"]
    if crashed > MAX_CRASH_FRACTION * len(grades) and not grade_answers([EASY])[0].correct:
        on = f"the grader crashed on {crashed} of {len(grades)} answers, and on an easy one"
        remedy = "check memory and limits (`ulimit -a`) of this machine and score again"
        raise RuntimeError(f"{completions}: {on}: {remedy}")
    if failed:
        on = f"{failed} of {len(grades)} answers were too expensive for the grader ({crashed} crashed it)"
        sys.stderr.write(f"warning: {completions}: {on}; they count as wrong\n")


def _judged(
    rows: list[ScoreRow],
    problems: list[AnsweredProblem],
    task: Mapping[str, Any] | None,
    judge: Judge,
) -> list[ScoreRow]:
    """Return the rows with the verifier's verdicts on the responses that the rules reject."""
    asked = [row["question"] for row in rows_of(task, problems)] if task else None
    questions = [
        Question(asked[i] if asked else problem.question, problem.gold, text)
        for i, problem in enumerate(problems)
        for text in problem.responses
    ]
    wrong = [i for i, row in enumerate(rows) if not row.correct]
    for i, judgement in zip(wrong, judge([questions[i] for i in wrong]), strict=True):
        rows[i] = with_judgement(rows[i], judgement)
    return rows
