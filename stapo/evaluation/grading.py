r"""One function that says whether a response answers a problem, for everybody who asks.

The answer is what stands in the last \boxed{...}; of several, see `boxes`. It is hostile text: math-verify
sees it only in a worker process with limits of memory and processor time, which the kernel ends at the limit
and which is replaced. A limit, a crash, an answer that cannot be read, no box and a wrong answer are
different verdicts.

Processor time, since a verdict must not depend on what else the machine does. What stays: on a slower
machine an answer that needs nearly the whole limit is a timeout that is none on a faster one.

What counts as an answer: `notation`. Which equalities of math-verify are not believed, and which faults
stay: `grading_worker`.
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

from tqdm import tqdm

from stapo.evaluation.boxes import final_answer
from stapo.evaluation.boxes import last_boxed as last_boxed
from stapo.records.verdicts import FAILURES, Verdict

MAX_FAILURE_FRACTION = 0.05
"""More timeouts and crashes than this share of the responses, and the machine is the likelier reason."""

WORKER = "stapo.evaluation.grading_worker"

SECONDS = 10.0
"""Of processor time; a usual answer needs some hundredths."""
MEMORY_BYTES = 2 * 2**30
STALLED_SECONDS = 60.0
"""A worker that uses no processor time for so long is blocked, not busy."""
RELATIVE_TOLERANCE = 1e-4
"""Between decimals: what rounding to six places, math-verify's rule, allows at 0.01."""
SCIENTIFIC = re.compile(
    r"(?<![\w.])([-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++))[eE]([-+]?)([0-9]++)(?!\.?\w)"
)
"""Possessive: looking for a way back through 200,000 digits would take minutes."""
_WHOLE = "([0-9]{1,18})"
NUMBER = re.compile(
    r"(-?)(?:([0-9]{1,18}(?:\.[0-9]{1,18})?)(?:\s*\\(?:times|cdot)\s*10\^\{(-?[0-9]{1,2})\})?"
    rf"|{_WHOLE}/{_WHOLE}|\\[dt]?frac\{{{_WHOLE}\}}\{{{_WHOLE}\}})"
)

_idle: defaultdict[int, list["subprocess.Popen[str]"]] = defaultdict(list)
"""Workers by memory limit. A fork must not talk to, or end, those of its parent."""
os.register_at_fork(after_in_child=_idle.clear)


@dataclass(frozen=True)
class Grade:
    """What became of one response."""

    verdict: Verdict
    answer: str | None
    """The content of the last box, or of several for a gold of several parts."""

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
    """Drop the full stop at the end of a sentence, which ended up in the box; math-verify fails on it."""
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
    """Return the grade of each (gold, response), in their order.

    Equal pairs of gold and answer are graded once. An answer that is the gold, character by character,
    is correct without mathematics, whatever it says: the gold is trusted. Plain numbers that are equal or
    far apart need none either. Workers start when an answer needs one and live until the process ends.

    Args:
        pairs: trusted gold answers and untrusted responses.
        workers: processes at a time.
        seconds: limit of one answer's processor time.
        memory_bytes: address space that a worker may add to that of its imports.
        progress: show a bar.

    Raises:
        RuntimeError: the worker does not start.
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
        bar = tqdm(found, "grading", len(unequal), disable=not progress, mininterval=1.0)
        verdicts.update(zip(unequal, bar, strict=True))
    return [
        Grade("no_box", None) if answer is None else Grade(verdicts[gold, answer], answer)
        for (gold, _), answer in zip(pairs, answers, strict=True)
    ]


def _obvious(gold: str, answer: str, written: str) -> Verdict | None:
    """Return the verdict where no mathematics is needed, with the full stop (answer) or without it."""
    if gold in (answer, written):
        return "correct"
    expected, found = _number(gold), _number(written)
    if expected is None or found is None:
        return None
    if expected == found:
        return "correct"
    # As `_agree` judges numbers; what lies closer is math-verify's to round.
    far = abs(expected - found) > RELATIVE_TOLERANCE * max(abs(expected), abs(found))
    exact = "." not in gold + written
    return "wrong" if far or exact else None


def _number(text: str) -> Fraction | None:
    r"""Return the number that 12, 0.5, 4.5e33, -3/4 or \frac{3}{4} is; None for anything else."""
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
    """Return a worker's verdict; a crash counts only in a fresh worker."""
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
    """Return the answer of a worker, and keep the worker or end it."""
    assert process.stdin is not None
    worn = True
    try:
        process.stdin.write(request)
        process.stdin.flush()
        verdict: Verdict
        verdict, worn = json.loads(_read(process))
    except (BrokenPipeError, EOFError):
        verdict = "timeout" if process.wait() == -signal.SIGPROF else "crash"
    except TimeoutError:  # No answer makes a worker wait; something outside has stopped it.
        verdict = "crash"
    finally:
        # Also after Ctrl-C: an answer that nobody read would pass for that of the next request.
        if worn:
            _stop(process)
    if not worn:
        _idle[memory_bytes].append(process)
    return verdict


def _read(process: "subprocess.Popen[str]") -> str:
    """Return one line of a worker, which writes each at once; wait for as long as it computes."""
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
    # The name of the program, in parentheses, may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _start(memory_bytes: int) -> "subprocess.Popen[str]":
    """Return a new worker after its imports, which are no answer's fault."""
    # -P: neither this directory, which has a statistics.py, nor the caller's shadows a library. The
    # hash seed fixes the order of sympy's sets and with it the rare verdict that depends on it.
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
        why = f"the grading worker does not start or judges known answers wrongly; see {' '.join(command)}"
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
