r"""The process in which math-verify sees a hostile answer: started, limited and killed by `grading`.

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

import json
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import math_verify
import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from sympy.core.relational import Relational

from stapo.evaluation.grading import RELATIVE_TOLERANCE, Verdict

EXACT_TOLERANCE = 1e-40
"""Between exact expressions evaluated to 50 digits."""
ZERO = 1e-90
"""sympy gives up on a sum that cancels at 100 digits; what it then returns is noise."""
BRACED = re.compile(r"\s*(\\left)?\s*\\(\{|lbrace)")


class TwoStageParser(latex2sympy2.PSParser):  # type: ignore[misc]
    """Predicts without the full context first: five times faster.

    ANTLR guarantees that this gives the same tree or a syntax error; then the full context decides.
    """

    def math(self) -> Any:
        """Return the tree of the whole input."""
        self._interp.predictionMode = PredictionMode.SLL
        try:
            return super().math()
        except (MemoryError, RecursionError):
            raise
        except Exception:
            self.reset()
            self._interp.predictionMode = PredictionMode.LL
            return super().math()


latex2sympy2.PSParser = TwoStageParser


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
        # Of what it cannot read, math-verify returns at most the text.
        if all(isinstance(item, str) for item in found):
            refused: Verdict = "unparsable"
        else:
            refused = "wrong"
            # The numbers first: they tell most wrong answers in a tenth of the time.
            if expected and not _confirms(gold, answer, expected[0], found[0]):
                return refused
        equal = math_verify.verify(expected, found, timeout_seconds=None, raise_on_error=True)
        return "correct" if equal else refused
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
