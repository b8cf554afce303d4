r"""One function that says whether a response answers a problem, for everybody who asks.

The answer is what stands in the last \boxed{...}. It is hostile text: math-verify sees it only in a
worker process with a memory limit, which is killed at the wall limit and replaced. A limit, a crash,
an answer that cannot be read, no box and a wrong answer are different verdicts.

math-verify 0.9.0 takes unequal things for equal. Why, and what is done here:

- 4 = 4\u221a(2), 3*x-1*y+13=0 = 3x+4y+14=0: what is no LaTeX falls back to the last number in the text,
  and to Python's eval. Only its LaTeX reader is used.
- 1/2^{99} = 1/2^{98}, x+2^{-99} = x+2^{-98}: differences below 1e-15 are chopped; 1e-7 = 2e-7: decimals
  are rounded to six places. `_agree` compares relative to the size, with 50 digits.
- (1,2) = \{1,2\}: meant for roots in parentheses. Refused where the set has braces.
- x^2+1=0 = x^2+2=0: two equations without real solutions have the same solutions. `_same_relation`.

Known and left: it drops what follows a symbol and a space (a = `a b c`), adds numbers apart by a space
(9 = `4 5`), ignores units and degree signs, takes the last side of a chain (5 = `2+2=5`), takes 50\%
for 50 and for 0.5, knows no \sqrt{1/n} = 1/\sqrt{n}, and swallows a MemoryError of its reader, which then
counts as unparsable. Braces are counted in `last_boxed` whether escaped or not: a box with
\left\{ ... \right. does not close. Linux only: memory is read from /proc.
"""

import atexit
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

if __name__ == "__main__":  # The worker: the caller never has mathematics in its process.
    import math_verify
    import sympy
    from sympy.core.relational import Relational

Verdict = Literal["correct", "wrong", "no_box", "unparsable", "timeout", "crash"]

MAX_FAILURE_FRACTION = 0.005
"""More timeouts and crashes than this share of the responses, and a score is not to be believed."""

SECONDS = 5.0
MEMORY_BYTES = 2 * 2**30
START_SECONDS = 120.0
"""For the worker's imports on a busy machine."""
GRACE_SECONDS = 2.0
"""After the wall limit a worker ends itself, should its parent be gone."""
RELATIVE_TOLERANCE = 1e-4
"""Between decimals: what rounding to six places, math-verify's rule, allows at 0.01."""
EXACT_TOLERANCE = 1e-40
"""Between exact expressions evaluated to 50 digits."""
ZERO = 1e-90
"""sympy gives up on a sum that cancels at 100 digits; what it then returns is noise."""
SCIENTIFIC = re.compile(
    r"(?<![\w.])([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))[eE]([-+]?)0*([0-9]+)(?!\.?\w)"
)
BRACES = re.compile(r"\\boxed\{|[{}]")
BRACED = re.compile(r"\s*(\\left)?\s*\\(\{|lbrace)")

_idle: defaultdict[int, list["subprocess.Popen[str]"]] = defaultdict(list)
"""Workers by memory limit. A fork must not talk to, or end, those of its parent."""
os.register_at_fork(after_in_child=_idle.clear)


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
    r"""Return the content of the last \boxed{...} whose braces close; None without one.

    In a response cut off inside its last box, what was boxed before stands.
    """
    opened: list[tuple[bool, int]] = []
    start = end = -1
    for match in BRACES.finditer(text):
        if match[0] != "}":
            opened.append((match[0] != "{", match.end()))
        elif opened:
            is_box, position = opened.pop()
            if is_box and position > start:
                start, end = position, match.start()
    return None if start < 0 else text[start:end]


def normalise(text: str) -> str:
    r"""Rewrite 4.5e33 as 4.5\times10^{33}, which math-verify reads as 4.5 times e times 33."""
    return SCIENTIFIC.sub(
        lambda m: rf"{m[1]}\times10^{{{'-' if m[2] == '-' else ''}{m[3]}}}", text.strip()
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
    is correct without mathematics, whatever it says: the gold is trusted. Whole numbers need none
    either. Workers start when the first answer needs one and live until the process ends.

    Args:
        pairs: trusted gold answers and untrusted responses.
        workers: processes at a time.
        seconds: wall limit of one answer.
        memory_bytes: address space that a worker may add to that of its imports.
        progress: show a bar.

    Raises:
        RuntimeError: the worker does not start.
    """
    answers = [last_boxed(response) for _, response in pairs]
    verdicts: dict[tuple[str, str], Verdict] = {}
    unequal = []
    for (gold, _), answer in zip(pairs, answers, strict=True):
        if answer is None or (gold, answer) in verdicts:
            continue
        written = without_full_stop(answer)
        whole = _is_whole(gold) and _is_whole(written)
        same = (
            int(gold) == int(written)
            if whole
            else gold.strip() in (answer.strip(), written.strip())
        )
        verdicts[gold, answer] = "correct" if same else "wrong"
        if not (same or whole):
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


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text) is not None


def failure_fraction(grades: Sequence[Grade]) -> float:
    """Return the share of responses on which the grader itself failed."""
    failed = sum(grade.verdict in ("timeout", "crash") for grade in grades)
    return failed / max(len(grades), 1)


# The side of the caller.


def _verdict(gold: str, answer: str, seconds: float, memory_bytes: int) -> Verdict:
    """Return a worker's verdict; a crash is believed only of a new one, which nothing has worn."""
    request = json.dumps([normalise(gold), normalise(answer), seconds + GRACE_SECONDS]) + "\n"
    try:
        used = _idle[memory_bytes].pop()
    except IndexError:
        pass
    else:
        verdict = _ask(used, request, seconds, memory_bytes)
        if verdict != "crash":
            return verdict
    return _ask(_start(memory_bytes), request, seconds, memory_bytes)


def _ask(
    process: "subprocess.Popen[str]", request: str, seconds: float, memory_bytes: int
) -> Verdict:
    """Return the answer of a worker, and keep the worker or end it."""
    assert process.stdin is not None
    worn = True
    try:
        process.stdin.write(request)
        process.stdin.flush()
        verdict: Verdict
        verdict, worn = json.loads(_read(process, seconds))
    except (BrokenPipeError, EOFError):
        verdict = "crash"
    except TimeoutError:
        verdict = "timeout"
    finally:
        # Also after Ctrl-C: an answer that nobody read would pass for that of the next request.
        if worn:
            _stop(process)
    if not worn:
        _idle[memory_bytes].append(process)
    return verdict


def _read(process: "subprocess.Popen[str]", seconds: float) -> str:
    """Return one line of a worker, which writes each at once."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(seconds):
            raise TimeoutError
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise EOFError
    return line


def _start(memory_bytes: int) -> "subprocess.Popen[str]":
    """Return a new worker after its imports, which are no answer's fault."""
    # -P: neither this directory, which has a statistics.py, nor the caller's shadows a library. The
    # hash seed fixes the order of sympy's sets and with it the rare verdict that depends on it.
    command = [sys.executable, "-P", __file__, str(memory_bytes)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    try:
        _read(process, START_SECONDS)
    except BaseException as error:
        _stop(process)
        if not isinstance(error, EOFError | TimeoutError):
            raise
        raise RuntimeError(f"the grading worker does not start; see {' '.join(command)}") from error
    return process


def _stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@atexit.register
def _stop_idle() -> None:
    for processes in _idle.values():
        while processes:
            _stop(processes.pop())


# The side of the worker: nothing below runs in the caller.


def _serve(memory_bytes: int) -> None:
    """Answer each request on standard input by the verdict and whether this worker is worn."""
    # Nothing that a library prints may pass for a verdict.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _judge("1", r"\frac{1}{2}")
    start = _address_space()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = start + memory_bytes
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        gold, answer, seconds = json.loads(line)
        # Nobody handles the alarm: the kernel ends this process, even within one multiplication.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        verdict = _judge(gold, answer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        # What sympy caches of one answer must not starve the next.
        worn = verdict == "crash" or _address_space() - start > memory_bytes / 8
        print(json.dumps([verdict, worn]), file=answers, flush=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _judge(gold: str, answer: str) -> Verdict:
    try:
        expected, found = _parse(gold), _parse(answer)
        equal = math_verify.verify(expected, found, timeout_seconds=None, raise_on_error=True)
        if equal and _confirms(gold, answer, expected[0], found[0]):
            return "correct"
        # Of what it cannot read, math-verify returns at most the text.
        return "wrong" if any(not isinstance(item, str) for item in found) else "unparsable"
    except (MemoryError, RecursionError):
        return "crash"
    except Exception:  # What sympy throws at a comparison means "not equal", as in math-verify.
        return "wrong"


def _parse(text: str) -> list[Any]:
    config = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
    boxed = rf"\boxed{{{text}}}"
    parsed: list[Any] = math_verify.parse(boxed, extraction_config=config, parsing_timeout=None)
    return parsed


def _confirms(gold: str, answer: str, expected: Any, found: Any) -> bool:
    """Return a second opinion on what math-verify takes for equal; True where there is none."""
    for text, side, other in ((gold, expected, found), (answer, found, expected)):
        ordered = isinstance(other, sympy.Interval | sympy.Tuple)
        if ordered and isinstance(side, sympy.FiniteSet) and BRACED.match(text):
            return False
    try:
        return _same(expected, found)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # No number comes out, or sympy cannot say which is larger.
        return True


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, sympy.Eq) != isinstance(right, sympy.Eq):
        # x=5 and 5 are the same to math-verify.
        left, right = (s.rhs if isinstance(s, sympy.Eq) else s for s in (left, right))
    if isinstance(left, Relational) and isinstance(right, Relational):
        return _same_relation(left, right)
    if isinstance(left, sympy.Symbol) or isinstance(right, sympy.Symbol):
        return True  # Words are compared by their letters: Evelyn is a product or a symbol.
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr):
        return any(_agree(a, b) for a in _readings(left) for b in _readings(right))
    ours, theirs = _parts(left), _parts(right)
    if len(ours) != len(theirs):
        return True
    if isinstance(left, sympy.FiniteSet) or isinstance(right, sympy.FiniteSet):
        return all(any(_same(a, b) for b in theirs) for a in ours)
    return all(map(_same, ours, theirs))


def _parts(side: Any) -> list[Any]:
    if isinstance(side, sympy.Interval):
        return [side.start, side.end]
    return list(side.args) if isinstance(side, sympy.FiniteSet | sympy.Tuple) else []


def _readings(side: Any) -> list[Any]:
    """Return 0.5 and 50 of 50%, both of which math-verify means."""
    percent = isinstance(side, sympy.Mul) and isinstance(side.args[-1], sympy.UnevaluatedExpr)
    return [side, side.args[0]] if percent else [side]


def _same_relation(left: Any, right: Any) -> bool:
    if left.lhs == right.lhs:
        return _same(left.rhs, right.rhs)
    if not isinstance(left, sympy.Eq):
        return True
    ours, theirs = left.lhs - left.rhs, right.lhs - right.rhs
    if _agree(ours, theirs) or _agree(ours, -theirs):
        return True
    # Then math-verify compared the solutions; without any, all of them are equal.
    return bool(sympy.solve(left, left.free_symbols))


def _agree(left: Any, right: Any) -> bool:
    """Compare by value, relative to the size, at two points of the symbols."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    if not symbols and left.doit().is_Rational and right.doit().is_Rational:
        return bool(left.doit() == right.doit())
    decimal = left.has(sympy.Float) or right.has(sympy.Float)
    tolerance = RELATIVE_TOLERANCE if decimal else EXACT_TOLERANCE
    for first in (7, 12):
        point = {symbol: first + 2 * i for i, symbol in enumerate(symbols)}
        a, b = (side.evalf(50, subs=point) for side in (left, right))
        if a != b and abs(a - b) > max(tolerance * max(abs(a), abs(b)), ZERO):
            return False
    return True


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
