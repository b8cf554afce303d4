r"""One function that says whether a response answers a problem, for everybody who asks.

The answer is what stands in the last \boxed{...}. It is hostile text: math-verify sees it only in a
worker process with a memory limit, which is killed at the wall limit and replaced. A limit, a crash,
an answer that cannot be read, no box and a wrong answer are different verdicts.
"""

import atexit
import json
import re
import selectors
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tqdm import tqdm

Verdict = Literal["correct", "wrong", "no_box", "unparsable", "timeout", "crash"]

MAX_FAILURE_FRACTION = 0.005
"""More timeouts and crashes than this share of the responses, and a score is not to be believed."""

SECONDS = 5.0
MEMORY_BYTES = 2 * 2**30
START_SECONDS = 120.0
"""For the worker's imports on a busy machine."""
BOX = r"\boxed{"
SCIENTIFIC = re.compile(r"(?<![\w.])([-+]?\d+(?:\.\d+)?)[eE]([-+]?)0*(\d+)(?!\w)")


@dataclass(frozen=True)
class Grade:
    """What became of one response."""

    verdict: Verdict
    answer: str | None
    """The content of the last box."""

    @property
    def correct(self) -> bool:
        """Whether the response counts as correct."""
        return self.verdict == "correct"


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} whose braces close; None without one."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    depth = 0
    for position in range(start + len(BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len(BOX) : position]
    # Cut off inside its last box: what was boxed before stands.
    return _closed_before(text, start)


def _closed_before(text: str, end: int) -> str | None:
    """Return the last box that closes before `end`."""
    opened: list[int] = []
    found = None
    for position in range(end):
        if text[position] == "{":
            opened.append(position)
        elif text[position] == "}" and opened:
            start = opened.pop()
            if text.endswith(BOX, 0, start + 1):
                found = text[start + 1 : position]
    return found


def normalise_gold(gold: str) -> str:
    r"""Rewrite 4.5e33 as 4.5\times10^{33}, which math-verify reads as 4.5 times e times 33."""
    return SCIENTIFIC.sub(
        lambda m: rf"{m[1]}\times10^{{{'-' if m[2] == '-' else ''}{m[3]}}}", gold.strip()
    )


def grade(gold: str, response: str) -> Grade:
    """Return the grade of one response."""
    return grade_all([(gold, response)])[0]


def grade_all(
    pairs: Sequence[tuple[str, str]],
    *,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool = False,
) -> list[Grade]:
    """Return the grade of each (gold, response), in their order.

    Equal pairs of gold and answer are graded once. An answer that is the gold, character by character,
    needs no mathematics.

    Args:
        pairs: trusted gold answers and untrusted responses.
        seconds: wall limit of one answer.
        memory_bytes: address space that the worker may add for one answer.
        progress: show a bar.
    """
    answers = [last_boxed(response) for _, response in pairs]
    verdicts: dict[tuple[str, str], Verdict] = {}
    for (gold, _), answer in zip(pairs, answers, strict=True):
        if answer is not None:
            same = answer.strip() == gold.strip()
            verdicts[gold, answer] = "correct" if same else "wrong"
    unequal = [pair for pair, verdict in verdicts.items() if verdict != "correct"]
    # Whole numbers need no mathematics either: equal only if they are the same number.
    for gold, answer in tqdm(unequal, desc="grading", disable=not progress, mininterval=1.0):
        if not (_is_whole(gold) and _is_whole(answer)):
            verdicts[gold, answer] = _worker(memory_bytes).grade(gold, answer, seconds)
        elif int(gold) == int(answer):
            verdicts[gold, answer] = "correct"
    return [
        Grade("no_box", None) if answer is None else Grade(verdicts[gold, answer], answer)
        for (gold, _), answer in zip(pairs, answers, strict=True)
    ]


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text) is not None


def failure_fraction(grades: Sequence[Grade]) -> float:
    """Return the share of responses on which the grader itself failed."""
    failed = sum(grade.verdict in ("timeout", "crash") for grade in grades)
    return failed / max(len(grades), 1)


class Worker:
    """A process that grades one answer at a time, replaced whenever it had to be killed."""

    def __init__(self, memory_bytes: int):
        self.memory_bytes = memory_bytes
        self.process: subprocess.Popen[str] | None = None

    def grade(self, gold: str, answer: str, seconds: float) -> Verdict:
        """Return the verdict on one answer."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([normalise_gold(gold), answer]) + "\n")
            process.stdin.flush()
            line = self._read(seconds)
        except (BrokenPipeError, EOFError):
            self.stop()
            return "crash"
        except TimeoutError:
            self.stop()
            return "timeout"
        verdict: Verdict = json.loads(line)
        return verdict

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _running(self) -> subprocess.Popen[str]:
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.stop()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stapo.evaluation.grading_worker", str(self.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # Its imports are not the answer's fault.
        self._read(START_SECONDS)
        return self.process

    def _read(self, seconds: float) -> str:
        """Return one line of the worker, which writes each at once."""
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError
        return line


@cache
def _worker(memory_bytes: int) -> Worker:
    worker = Worker(memory_bytes)
    atexit.register(worker.stop)
    return worker
