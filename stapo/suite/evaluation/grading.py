"""The grader: decides whether a response answers a problem, for all parts of the suite.

A reader of `stapo.suite.answers` finds the answer of a response, and `judge` compares it with the gold by
math-verify, a task of reasoning-gym judges it, or `sandbox` runs it as code. Answers are untrusted, so the
others are parsed only in worker processes with limits of memory and processor time. The kernel ends a worker
at its limit, and a new one replaces it. A timeout, a crash, an unparsable answer, no answer and a wrong
answer are different verdicts.

The limit is processor time, so that a verdict does not depend on the load of the machine. It still depends
on its speed: an answer that needs nearly the whole limit may be a timeout on a slower machine only.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stapo.suite import domains, sandbox
from stapo.suite.answers import READERS, Reader, Verifier
from stapo.suite.bars import bar
from stapo.suite.limited import start
from stapo.suite.records.scores import Verdict

SECONDS = 10.0
"""Limit of processor time per answer; most answers need some hundredths of a second."""
MEMORY_BYTES = 2 * 2**30
"""Limit of a worker's address space."""
LONGEST = 2000
"""Characters of an answer; the longest gold of the six benchmarks has 198. A longer answer is unparsable."""
MOST_SANDBOXES = 8
"""Functions that run at the same time, at most: each may use half a GiB."""
INTEGER = re.compile(r"-?[0-9]{1,18}")

WORKERS: dict[Verifier, list[str]] = {
    "math_verify": ["stapo.suite.evaluation.judge"],
    "reasoning_gym": ["stapo.suite.domains.worker", "judge"],
}
"""Module that judges, with its first arguments."""
_idle: dict[Verifier, "subprocess.Popen[str]"] = {}
"""The worker that waits for an answer, kept between calls; a forked process must not use its parent's."""
os.register_at_fork(after_in_child=_idle.clear)


@dataclass(frozen=True)
class Grade:
    """Verdict on one response."""

    verdict: Verdict
    answer: str | None
    """What the reader found; None if there is no answer."""
    plain: bool = False
    """Whether math-verify alone, without our rules, accepts the answer."""

    @property
    def correct(self) -> bool:
        """Whether the response counts as correct."""
        return self.verdict == "correct"


def grade_all(
    pairs: Sequence[tuple[str, str]], reader: Reader = READERS["boxed"], *, progress: bool = False
) -> list[Grade]:
    """Return the grade of each (trusted gold, untrusted response), as `grade_answers` does."""
    answers = [(gold, reader.read(gold, response)) for gold, response in pairs]
    return grade_answers(answers, reader.verifier, progress=progress)


def grade_answers(
    pairs: Sequence[tuple[str, str | None]],
    verifier: Verifier = "math_verify",
    *,
    progress: bool = False,
) -> list[Grade]:
    """Return the grade of each (trusted gold, untrusted answer), in order; equal ones are graded once."""
    asked = {(gold, answer) for gold, answer in pairs if answer is not None}
    is_code, is_text = verifier == "python_function", verifier == "math_verify"
    # Tasks judge themselves, also long answers such as the moves of a puzzle.
    grades = {pair: told for pair in asked if (told := _obvious(*pair))} if is_text else {}
    left = sorted(asked - grades.keys())
    judged = _run_all(left) if is_code else (_judged(pair, verifier) for pair in left)
    shown = bar("grading", len(left), "answer", over=judged) if progress and left else judged
    grades.update(zip(left, shown, strict=True))
    return [
        Grade("no_box", None) if answer is None else grades[gold, answer] for gold, answer in pairs
    ]


def _obvious(gold: str, answer: str) -> Grade | None:
    """Return the grade if no worker is needed: equal texts, whole numbers, texts that are too long."""
    ours, theirs = gold.strip(), answer.strip()
    if ours == theirs:
        return Grade("correct", answer, plain=True)
    if INTEGER.fullmatch(ours) and INTEGER.fullmatch(theirs):
        same = int(ours) == int(theirs)
        return Grade("correct" if same else "wrong", answer, plain=same)
    return Grade("unparsable", answer) if len(answer) > LONGEST else None


def _run_all(pairs: Sequence[tuple[str, str]]) -> Iterator[Grade]:
    """Yield the grade of each pair of tests and code, as many at once as there are processors."""
    if pairs and (reason := sandbox.missing()):
        raise RuntimeError(reason)
    at_once = min(len(os.sched_getaffinity(0)), MOST_SANDBOXES)
    with ThreadPoolExecutor(at_once) as pool:
        verdicts = pool.map(lambda pair: sandbox.judge(*pair), pairs)
        for (_, code), verdict in zip(pairs, verdicts, strict=True):
            yield Grade(verdict, code, verdict == "correct")


def _judged(pair: tuple[str, str], verifier: Verifier) -> Grade:
    """Return a worker's grade; after a crash of a used worker, a fresh one repeats the request."""
    used = _idle.pop(verifier, None)
    grade = _ask(used, pair, verifier) if used else None
    if grade is None or grade.verdict == "crash":
        return _ask(_start(verifier), pair, verifier)
    return grade


def _ask(worker: "subprocess.Popen[str]", pair: tuple[str, str], verifier: Verifier) -> Grade:
    """Return the grade of a worker, which is then idle or has ended."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    verdict: Verdict | None = None
    plain = False
    try:
        worker.stdin.write(json.dumps(pair) + "\n")
        worker.stdin.flush()
        verdict = json.loads(worker.stdout.readline())
        plain = verdict == "correct"
        if verifier == "math_verify":
            plain = json.loads(worker.stdout.readline())
    except (BrokenPipeError, json.JSONDecodeError):
        if verdict is None:
            verdict = "timeout" if worker.wait() == -signal.SIGPROF else "crash"
        _stop(worker)
    except BaseException:
        # Such as Ctrl-C: an unread verdict would be taken as that of the next request.
        _stop(worker)
        raise
    else:
        _idle[verifier] = worker
    return Grade(verdict, pair[1], plain)


def _start(verifier: Verifier) -> "subprocess.Popen[str]":
    """Return a new worker that has finished its imports, so that they do not count as an answer's time."""
    if verifier == "reasoning_gym" and (reason := domains.missing()):
        raise RuntimeError(reason)
    words = (*WORKERS[verifier], str(MEMORY_BYTES), str(SECONDS))
    # The hash seed fixes the order of sympy's sets, on which rare verdicts depend.
    variables = domains.environment() if verifier == "reasoning_gym" else {"PYTHONHASHSEED": "0"}
    worker = start(words, variables)
    assert worker.stdout is not None
    if worker.stdout.readline() != "ready\n":
        _stop(worker)
        told = "the grading worker does not start or misjudges known answers; run"
        raise RuntimeError(f"{told} {sys.executable} -P -m {' '.join(words)}")
    return worker


def _stop(worker: "subprocess.Popen[str]") -> None:
    worker.kill()
    worker.communicate()
