r"""The grader: decides whether a response answers a problem, for all parts of the suite.

The answer of a response is its last \boxed{...}, or several boxes if the gold answer is a list: math-verify
takes boxes near each other for one list, so that 1 and 2 would be one answer in "\boxed{1}. No, \boxed{2}".
Here only separators may be between them, and the gold must be a list of equally many parts (OlympiadBench
$69$,$84$ and many others).

`judge` compares the answer with the gold by math-verify. Answers are untrusted, so they are read only in
worker processes with limits of memory and processor time. The kernel ends a worker at its limit, and a new
one replaces it. A timeout, a crash, an unparsable answer, a missing box and a wrong answer are different
verdicts.

The limit is processor time, so that a verdict does not depend on the load of the machine. It still depends
on its speed: an answer that needs nearly the whole limit may be a timeout on a slower machine only.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from stapo.bars import bar
from stapo.records.scores import Verdict

SECONDS = 10.0
"""Limit of processor time per answer; most answers need some hundredths of a second."""
MEMORY_BYTES = 2 * 2**30
"""Limit of a worker's address space."""
LONGEST = 2000
"""Characters of an answer; the longest gold of the six benchmarks has 198. A longer answer is unparsable."""
INTEGER = re.compile(r"-?[0-9]{1,18}")
BRACES = re.compile(r"\\boxed\{|[{}]")
BETWEEN = re.compile(r"(?:[\s$,;&~]|\\[()\[\],;:! ]|\\text\s*\{|\}|\*\*|\\q?quad|\b(?:and|or)\b)*")
"""Text allowed between the boxes of a list."""
LONGEST_GAP = 70
DELIMITERS = re.compile(r"(?<!\\)\$|\\[()\[\]](?!\w)")
THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
"""A number with thousands commas; a list that looks like one is taken for one number."""
PART = re.compile(r"(?P<open>\\\{|[({\[])|(?P<close>\\\}|[)}\]])|(?P<comma>,(?!\\!))")

_idle: list["subprocess.Popen[str]"] = []
"""The worker that waits for an answer, kept between calls; a forked process must not use its parent's."""
os.register_at_fork(after_in_child=_idle.clear)


@dataclass(frozen=True)
class Grade:
    """Verdict on one response."""

    verdict: Verdict
    answer: str | None
    """Content of the last box, or of several boxes if the gold answer has several parts."""
    plain: bool = False
    """Whether math-verify alone, without our rules, accepts the answer."""

    @property
    def correct(self) -> bool:
        """Whether the response counts as correct."""
        return self.verdict == "correct"


def grade_all(pairs: Sequence[tuple[str, str]], *, progress: bool = False) -> list[Grade]:
    """Return the grade of each (trusted gold, untrusted response), in the same order.

    Equal pairs of gold and answer are graded once. The worker starts when needed and ends with this process.

    Raises:
        RuntimeError: a worker does not start.
    """
    answers = [final_answer(gold, response) for gold, response in pairs]
    asked = {(gold, a) for (gold, _), a in zip(pairs, answers, strict=True) if a is not None}
    grades = {pair: told for pair in asked if (told := _obvious(*pair))}
    left = sorted(asked - grades.keys())
    found = map(_judged, left)
    shown = bar("grading", len(left), "answer", over=found) if progress and left else found
    grades.update(zip(left, shown, strict=True))
    return [
        Grade("no_box", None) if answer is None else grades[gold, answer]
        for (gold, _), answer in zip(pairs, answers, strict=True)
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


def _judged(pair: tuple[str, str]) -> Grade:
    """Return a worker's grade; after a crash of a used worker, a fresh one repeats the request."""
    try:
        used = _idle.pop()
    except IndexError:
        return _ask(_start(), pair)
    grade = _ask(used, pair)
    return _ask(_start(), pair) if grade.verdict == "crash" else grade


def _ask(worker: "subprocess.Popen[str]", pair: tuple[str, str]) -> Grade:
    """Return the grade of a worker, which is then idle or has ended."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    verdict: Verdict
    try:
        worker.stdin.write(json.dumps(pair) + "\n")
        worker.stdin.flush()
        verdict, plain = json.loads(worker.stdout.readline())
    except (BrokenPipeError, json.JSONDecodeError):
        verdict, plain = "timeout" if worker.wait() == -signal.SIGPROF else "crash", False
        _stop(worker)
    except BaseException:
        # Such as Ctrl-C: an unread verdict would be taken as that of the next request.
        _stop(worker)
        raise
    else:
        _idle.append(worker)
    return Grade(verdict, pair[1], plain)


def _start() -> "subprocess.Popen[str]":
    """Return a new worker that has finished its imports, so that they do not count as an answer's time."""
    # -P: no file of this directory, such as statistics.py, or of the working directory shadows a library.
    command = [sys.executable, "-P", "-m", "stapo.evaluation.judge"]
    # The hash seed fixes the order of sympy's sets, on which rare verdicts depend.
    worker = subprocess.Popen(
        [*command, str(MEMORY_BYTES), str(SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert worker.stdout is not None
    if worker.stdout.readline() != "ready\n":
        _stop(worker)
        told = "the grading worker does not start or misjudges known answers; run"
        raise RuntimeError(f"{told} {' '.join(command)} {MEMORY_BYTES} {SECONDS}")
    return worker


def _stop(worker: "subprocess.Popen[str]") -> None:
    worker.kill()
    worker.communicate()


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} whose braces close, None without one.

    If a response is truncated inside its last box, the box before it counts.
    """
    boxes = _closed(text)
    return text[slice(*max(boxes))] if boxes else None


def final_answer(gold: str, response: str) -> str | None:
    """Return the answer of a response: its last box, or as many of its last boxes as the gold has parts."""
    boxes = sorted(_closed(response))
    if not boxes:
        return None
    wanted = parts(gold)
    run = [boxes[-1]]
    for box in reversed(boxes[-wanted - 1 : -1]):
        between = response[box[1] + 1 : run[0][0] - len(r"\boxed{")]
        if len(between) > LONGEST_GAP or not BETWEEN.fullmatch(between):
            break
        run.insert(0, box)
    found = [response[slice(*box)].strip() for box in run]
    if len(run) == wanted > 1 and all(parts(one) == 1 for one in found):
        return ", ".join(found)
    return response[slice(*boxes[-1])]


def parts(text: str) -> int:
    """Return the number of parts of a list, separated by commas outside of all brackets."""
    text = DELIMITERS.sub("", text).strip()
    if THOUSANDS.fullmatch(text):
        return 1
    depth = commas = 0
    for match in PART.finditer(text):
        depth += bool(match["open"]) - bool(match["close"])
        commas += match["comma"] is not None and depth == 0
    return commas + 1


def _closed(text: str) -> list[tuple[int, int]]:
    """Return start and end of the content of every box that is closed."""
    opened: list[tuple[bool, int]] = []
    found = []
    for match in BRACES.finditer(text):
        if match[0] != "}":
            opened.append((match[0] != "{", match.end()))
        elif opened:
            is_box, position = opened.pop()
            if is_box:
                found.append((position, match.start()))
    return found
