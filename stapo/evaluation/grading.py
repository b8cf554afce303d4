r"""The grader: decides whether a response answers a problem, for all parts of the suite.

The answer is the content of the last \boxed{...}; for several boxes see `boxes`. Answers are untrusted:
math-verify reads them only in worker processes with limits of memory and processor time. The kernel ends a
worker at its limit, and a new one replaces it. A timeout, a crash, an unparsable answer, a missing box and
a wrong answer are different verdicts.

The limit is processor time, so that a verdict does not depend on the load of the machine. It still depends
on its speed: an answer that needs nearly the whole limit may be a timeout on a slower machine only.

`notation` decides what counts as an answer. `grading_worker` lists the equalities of math-verify that are
overruled, and the known errors that remain.
"""

import atexit
import json
import os
import re
import selectors
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from stapo.bars import bar
from stapo.evaluation.boxes import final_answer
from stapo.evaluation.boxes import last_boxed as last_boxed
from stapo.records.verdicts import FAILURES, Verdict

MAX_FAILURE_FRACTION = 0.05
"""Largest accepted share of timeouts and crashes; above it, the likely cause is the machine."""

WORKER = "stapo.evaluation.grading_worker"

SECONDS = 10.0
"""Limit of processor time per answer; most answers need some hundredths of a second."""
MEMORY_BYTES = 2 * 2**30
STALLED_SECONDS = 60.0
"""A worker that uses no processor time for this long is blocked, not busy."""
RELATIVE_TOLERANCE = 1e-4
"""Tolerance between decimals; math-verify's rule, rounding to six places, allows the same at 0.01."""
SCIENTIFIC = re.compile(
    r"(?<![\w.])([-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++))[eE]([-+]?)([0-9]++)(?!\.?\w)"
)
"""Possessive quantifiers: backtracking through 200,000 digits would take minutes."""
_WHOLE = "([0-9]{1,18})"
NUMBER = re.compile(
    r"(-?)(?:([0-9]{1,18}(?:\.[0-9]{1,18})?)(?:\s*\\(?:times|cdot)\s*10\^\{(-?[0-9]{1,2})\})?"
    rf"|{_WHOLE}/{_WHOLE}|\\[dt]?frac\{{{_WHOLE}\}}\{{{_WHOLE}\}})"
)

_idle: defaultdict[int, list["subprocess.Popen[str]"]] = defaultdict(list)
"""Idle workers by memory limit. A forked process must not use or end those of its parent."""
os.register_at_fork(after_in_child=_idle.clear)


@dataclass(frozen=True)
class Grade:
    """Verdict on one response."""

    verdict: Verdict
    answer: str | None
    """Content of the last box, or of several boxes if the gold answer has several parts."""

    @property
    def correct(self) -> bool:
        """Whether the response counts as correct."""
        return self.verdict == "correct"


def normalise(text: str) -> str:
    r"""Rewrite 4.5e33 as 4.5\times10^{33}, which math-verify reads as 4.5 times e times 33."""
    return SCIENTIFIC.sub(
        lambda m: rf"{m[1]}\times10^{{{m[2].strip('+')}{m[3].lstrip('0') or '0'}}}", text.strip()
    )


def without_full_stop(answer: str) -> str:
    """Return the answer without the full stop of a sentence, on which math-verify fails."""
    return re.sub(r"(?<=[^\s.\\])\.\s*$", "", answer)


def grade(gold: str, response: str) -> Grade:
    """Return the grade of one response."""
    return grade_all([(gold, response)])[0]


def grade_all(
    pairs: Sequence[tuple[str, str]],
    *,
    workers: int = 1,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool = False,
) -> list[Grade]:
    """Return the grade of each (gold, response), in the same order.

    Equal pairs of gold and answer are graded once. An answer that is identical to the gold answer is
    correct without a worker, since gold answers are trusted. Plain numbers that are equal or far apart
    need no worker either. Workers are started when needed, and run until the process ends.

    Args:
        pairs: trusted gold answers and untrusted responses.
        workers: number of parallel processes.
        seconds: limit of processor time per answer.
        memory_bytes: limit of a worker's address space, in addition to that of its imports.
        progress: whether to show a progress bar.

    Raises:
        RuntimeError: a worker does not start.
    """
    answers = [final_answer(gold, response) for gold, response in pairs]
    verdicts: dict[tuple[str, str], Verdict] = {}
    unequal = []
    for (gold, _), answer in zip(pairs, answers, strict=True):
        if answer is None or (gold, answer) in verdicts:
            continue
        written = without_full_stop(answer)
        verdict = _obvious(gold.strip(), answer.strip(), written.strip())
        verdicts[gold, answer] = verdict or "wrong"
        if verdict is None:
            unequal.append((gold, answer))

    def judged(pair: tuple[str, str]) -> Verdict:
        return _verdict(pair[0], without_full_stop(pair[1]), seconds, memory_bytes)

    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(judged, unequal)
        shown = (
            bar("grading", len(unequal), "answer", over=found) if progress and unequal else found
        )
        verdicts.update(zip(unequal, shown, strict=True))
    return [
        Grade("no_box", None) if answer is None else Grade(verdicts[gold, answer], answer)
        for (gold, _), answer in zip(pairs, answers, strict=True)
    ]


def _obvious(gold: str, answer: str, written: str) -> Verdict | None:
    """Return the verdict if no worker is needed; `written` is the answer without its full stop."""
    if gold in (answer, written):
        return "correct"
    expected, found = _number(gold), _number(written)
    if expected is None or found is None:
        return None
    if expected == found:
        return "correct"
    # The same rule as in `_agree`; closer numbers are left to math-verify.
    far = abs(expected - found) > RELATIVE_TOLERANCE * max(abs(expected), abs(found))
    exact = "." not in gold + written
    return "wrong" if far or exact else None


def _number(text: str) -> Fraction | None:
    r"""Return the value of a number such as 12, 0.5, 4.5e33, -3/4 or \frac{3}{4}; None for other text."""
    match = NUMBER.fullmatch(normalise(text))
    if match is None:
        return None
    sign, decimal, exponent, *quotients = match.groups()
    if decimal:
        return Fraction(f"{sign}{decimal}e{exponent or 0}")
    top, bottom = (part for part in quotients if part)
    return Fraction(int(sign + top), int(bottom)) if int(bottom) else None


def failure_fraction(grades: Sequence[Grade]) -> float:
    """Return the share of responses on which the grader itself failed."""
    failed = sum(grade.verdict in FAILURES for grade in grades)
    return failed / max(len(grades), 1)


def _verdict(gold: str, answer: str, seconds: float, memory_bytes: int) -> Verdict:
    """Return a worker's verdict; after a crash of a used worker, a fresh one repeats the request."""
    request = json.dumps([gold, answer, seconds]) + "\n"
    try:
        used = _idle[memory_bytes].pop()
    except IndexError:
        pass
    else:
        verdict = _ask(used, request, memory_bytes)
        if verdict != "crash":
            return verdict
    return _ask(_start(memory_bytes), request, memory_bytes)


def _ask(process: "subprocess.Popen[str]", request: str, memory_bytes: int) -> Verdict:
    """Return the verdict of a worker, and then reuse or end the worker."""
    assert process.stdin is not None
    worn = True
    try:
        process.stdin.write(request)
        process.stdin.flush()
        verdict: Verdict
        verdict, worn = json.loads(_read(process))
    except (BrokenPipeError, EOFError):
        verdict = "timeout" if process.wait() == -signal.SIGPROF else "crash"
    except TimeoutError:  # No answer makes a worker wait; another process has stopped it.
        verdict = "crash"
    finally:
        # Also after Ctrl-C: an unread verdict would be taken as that of the next request.
        if worn:
            _stop(process)
    if not worn:
        _idle[memory_bytes].append(process)
    return verdict


def _read(process: "subprocess.Popen[str]") -> str:
    """Return one line from a worker, which writes whole lines; wait while it uses processor time."""
    assert process.stdout is not None
    before = -1
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not selector.select(STALLED_SECONDS):
            if (now := _processor_ticks(process.pid)) == before:
                raise TimeoutError
            before = now
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise EOFError
    return line


def _processor_ticks(pid: int) -> int:
    """Return the processor time that a process has used."""
    # The name of the program, in parentheses, may contain any characters.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _start(memory_bytes: int) -> "subprocess.Popen[str]":
    """Return a new worker that has finished its imports, so that they do not count as an answer's time."""
    # -P: no file of this directory, such as statistics.py, or of the working directory shadows a library.
    # The hash seed fixes the order of sympy's sets, on which rare verdicts depend.
    command = [sys.executable, "-P", "-m", WORKER, str(memory_bytes)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    try:
        _read(process)
    except BaseException as error:
        _stop(process)
        if not isinstance(error, EOFError | TimeoutError):
            raise
        why = (
            f"the grading worker does not start or misjudges known answers; run {' '.join(command)}"
        )
        raise RuntimeError(why) from error
    return process


def _stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@atexit.register
def _stop_idle() -> None:
    for processes in _idle.values():
        while processes:
            _stop(processes.pop())
