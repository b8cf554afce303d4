r"""The worker process in which math-verify reads untrusted answers; `grading` starts, limits and kills it.

`notation` compares how answers are written; this module compares their values. math-verify 0.9.0 accepts
these unequal pairs:

- 4 = 4\u221a(2), 3*x-1*y+13=0 = 3x+4y+14=0: if the text is not LaTeX, math-verify uses the last number in
  it, and Python's eval. Here only its LaTeX parser is used, on the whole text.
- 1/2^{99} = 1/2^{98}, x+2^{-99} = x+2^{-98}: differences below 1e-15 are dropped; 1e-7 = 2e-7: decimals
  are rounded to six places. `_agree` compares with 50 digits and a relative tolerance.
- (1,2) = \{1,2\}: intended for roots in parentheses. Here it is wrong if the set has braces.
- x^2+1=0 = x^2+2=0: two equations without real solutions have the same solutions. See `_same_relation`.
- 5 = `2+2=5`, 5 = `5\approx 7`: only one side of a chain is compared. `_judge_chain` compares all.

Measured on 18,000 pairs of `tests/grading_fuzz.py`, of which 8,260 are equal: 0 wrong accepts and 0 wrong
rejects; without the rules for marks, bases, chains and units, 3,359 and 1,222.

Known errors. Wrong accepts: 50\% equals both 50 and 0.5; degree signs and units in \text are not compared;
case is ignored; the left side of an equation may be anything, so `2x=10` is accepted for 10; (2,4) is both
a point and an interval. Wrong rejects: `5` for 2x=10; `2x=10` for x=5; `1/2 x` is parsed as 1/(2x), unlike
`(1)/(2) x`; a unit of one letter outside of \text is a factor. A MemoryError inside math-verify's parser
counts as unparsable. `last_boxed` counts escaped and unescaped braces alike, so a box with
\left\{ ... \right. does not close. Linux only: memory is read from /proc.
"""

import functools
import itertools
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
from math_verify.grader import should_treat_as_complex
from sympy.core.cache import clear_cache
from sympy.core.random import seed
from sympy.core.relational import Relational

from stapo.evaluation import notation
from stapo.evaluation.grading import RELATIVE_TOLERANCE
from stapo.records.verdicts import Verdict

EXACT_TOLERANCE = 1e-40
"""Relative tolerance between exact expressions evaluated to 50 digits."""
ZERO = 1e-90
"""Absolute tolerance: for a sum that cancels, sympy stops at 100 digits and returns noise."""
BRACED = re.compile(r"\s*(\\left)?\s*\\(\{|lbrace)")
POINTS = tuple(sympy.Rational(*point) for point in ((7, 1), (12, 1), (19, 7), (-11, 3), (-23, 9)))
"""Values of variables at which expressions are compared: integers, fractions, negative numbers."""
START_SECONDS = 60.0
"""Limit of processor time for the known answers that a worker judges first."""
ENOUGH = 2
"""Number of points with real values on both sides that are needed to call two expressions equal."""


class TwoStageParser(latex2sympy2.PSParser):  # type: ignore[misc]
    """Parser that first predicts without the full context, which is five times faster.

    ANTLR guarantees that this gives the same tree or a syntax error; after an error, the input is parsed
    again with the full context.
    """

    def math(self) -> Any:
        """Return the syntax tree of the whole input."""
        # Read all tokens now: a second attempt would continue after invalid characters.
        self._input.fill()
        self._refuse_parts_of_commands()
        self._interp.predictionMode = PredictionMode.SLL
        try:
            return super().math()
        except (MemoryError, RecursionError):
            raise
        except Exception:
            self.reset()
            self._interp.predictionMode = PredictionMode.LL
            return super().math()

    def _refuse_parts_of_commands(self) -> None:
        r"""Raise an error for commands such as \\newline, which the lexer splits into \\ne and letters."""
        text = str(self._input.tokenSource.inputStream)
        for token in self._input.tokens:
            if re.fullmatch(r"\\[a-zA-Z]+", token.text) and text[token.stop + 1 :][:1].isalpha():
                raise ValueError(f"unknown command at {token.text}")


latex2sympy2.PSParser = TwoStageParser


def _serve(memory_bytes: int) -> None:
    """Write, for each request on standard input, the verdict and whether this worker must be replaced."""
    # Output of libraries goes to stderr, so that it cannot be taken as a verdict.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Without a handler, the kernel ends this process at its limit, even within one multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, START_SECONDS)
    _judge("1", r"\frac{1}{2}")
    start = _address_space()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = start + memory_bytes
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A broken environment must not grade: all answers would be wrong, without any error.
    if [_judge("x", a) for a in (r"\frac{2x}{2}", r"\frac{x}{2}")] != ["correct", "wrong"]:
        sys.exit("the grader misjudges known answers; check the versions of sympy and math-verify")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        gold, answer, seconds = json.loads(line)
        # Reset sympy's cache and random numbers, so that a verdict does not depend on earlier answers.
        clear_cache()
        seed(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        verdict = _judge(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Memory that one answer leaves allocated must not be missing for the next.
        worn = verdict == "crash" or _address_space() - start > memory_bytes / 8
        print(json.dumps([verdict, worn]), file=answers, flush=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _judge(gold: str, answer: str) -> Verdict:
    try:
        gold, answer = notation.rewritten(gold), notation.rewritten(answer)
        if notation.fault(gold, answer):
            return "wrong"
        if notation.numeral(gold):
            return "correct"  # `fault` has compared digits and base.
        return _judge_values(gold, answer)
    except (MemoryError, RecursionError):
        return "crash"
    except Exception:  # Errors of sympy in a comparison mean "not equal", as in math-verify.
        return "wrong"


def _judge_values(gold: str, answer: str) -> Verdict:
    imaginary = should_treat_as_complex(gold) or should_treat_as_complex(answer)
    chain = notation.links(answer)
    gold, answer = notation.simplified(gold), notation.simplified(answer)
    if gold == answer:
        return "correct"
    expected = _read_gold(gold, imaginary)
    if chain and _is_number(expected):
        return _judge_chain(expected, chain, imaginary)
    named = chain and chain[1:-1] == ["="] and not notation.is_numeric(chain[0])
    if chain and named and notation.simplified(chain[-1]) == gold:
        return "correct"  # Even if it cannot be parsed.
    if not _is_number(expected):
        answer = notation.NAMED.sub(r"\1=", answer)
    if notation.APPROXIMATELY.search(answer) and not notation.APPROXIMATELY.search(gold):
        return "wrong"
    found = _read(answer, imaginary)
    if expected is None or found is None:
        return "unparsable" if found is None else "wrong"
    return "correct" if _equal(gold, answer, expected, found) else "wrong"


def _read(text: str, imaginary: bool) -> Any:
    """Return simplified text as a sympy object, None if it cannot be parsed."""
    try:
        return latex2sympy2.latex2sympy(
            text, is_real=not imaginary, convert_degrees=False, normalization_config=None
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


_read_gold = functools.lru_cache(maxsize=256)(_read)
"""Cached `_read`: many answers are compared with one gold answer."""


def _is_number(side: Any) -> bool:
    return isinstance(side, sympy.Expr) and not side.free_symbols


def _judge_chain(expected: Any, chain: list[str], imaginary: bool) -> Verdict:
    r"""Judge a chain such as S = 2+3 = 5 or \pi\approx 3.14: all its numbers agree, and one is the gold.

    Names, unevaluated sums and text that cannot be parsed are allowed as further sides.
    """
    sides = []
    for text in chain[::2]:
        if not any(p.search(text) for p in (notation.DOTS, notation.OPERATORS, notation.CHOICES)):
            text = notation.simplified(text)
            sides.append((text, _read(text, imaginary)))
    numbers = [(text, side) for text, side in sides if _is_number(side)]
    if not numbers:
        return "unparsable" if sides and sides[-1][1] is None else "wrong"
    for (left, a), (right, b) in itertools.pairwise(numbers):
        places = [
            p for p in (notation.last_place(left), notation.last_place(right)) if p is not None
        ]
        # Rounded or truncated after the last written digit.
        near = places and abs(a.evalf(50) - b.evalf(50)) < sympy.Integer(10) ** max(places)
        if not near and not _same(a, b):
            return "wrong"
    return "correct" if any(_equal("", "", expected, side) for _, side in numbers) else "wrong"


def _equal(gold: str, answer: str, expected: Any, found: Any) -> bool:
    expected, found = _alternatives(expected), _alternatives(found)
    ours = _opinion(gold, answer, expected, found)
    if ours is not None:
        return ours
    return bool(
        math_verify.verify(
            expected, found, timeout_seconds=None, raise_on_error=True, allow_set_relation_comp=True
        )
    )


def _alternatives(side: Any) -> Any:
    """Return a list of inequalities, such as x<2 or x>3, as a set; other values unchanged."""
    inequality = sympy.Lt | sympy.Le | sympy.Gt | sympy.Ge
    listed = isinstance(side, sympy.FiniteSet) and len(side.free_symbols) == 1
    if listed and all(isinstance(part, inequality) for part in side.args):
        return sympy.Union(*(part.as_set() for part in side.args))
    return side


def _opinion(gold: str, answer: str, expected: Any, found: Any) -> bool | None:
    """Return whether two values are equal, None if math-verify is to decide."""
    for text, side, other in ((gold, expected, found), (answer, found, expected)):
        ordered = isinstance(other, sympy.Interval | sympy.Tuple)
        if ordered and isinstance(side, sympy.FiniteSet) and BRACED.match(text):
            return False
    try:
        if not _same(expected, found):
            return False
        if isinstance(expected, sympy.Eq) and isinstance(found, sympy.Eq):
            return _same_equation(expected, found) or None
        return _agree_exactly(expected, found) or None
    except (MemoryError, RecursionError):
        raise
    except Exception:  # The result is not a number, or sympy cannot compare it.
        return None


def _same(left: Any, right: Any) -> bool:
    """Return False if two values certainly differ."""
    if isinstance(left, sympy.Eq) != isinstance(right, sympy.Eq):
        # math-verify treats x=5 and 5 as equal.
        left, right = (s.rhs if isinstance(s, sympy.Eq) else s for s in (left, right))
    if isinstance(left, Relational) and isinstance(right, Relational):
        return _same_relation(left, right)
    if _is_word(left, right):
        return True
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr):
        return any(_agree(a, b) for a in _readings(left) for b in _readings(right))
    ours, theirs = _parts(left), _parts(right)
    if len(ours) != len(theirs):
        return True
    if isinstance(left, sympy.FiniteSet) or isinstance(right, sympy.FiniteSet):
        return all(any(_same(a, b) for b in theirs) for a in ours)
    return all(map(_same, ours, theirs))


def _is_word(left: Any, right: Any) -> bool:
    """Return whether two words are compared, not values: Evelyn is a symbol or a product of symbols."""

    def letters(side: Any) -> bool:
        factors = side.args if isinstance(side, sympy.Mul) else (side,)
        return all(isinstance(factor, sympy.Symbol) or factor == sympy.E for factor in factors)

    symbol = isinstance(left, sympy.Symbol) or isinstance(right, sympy.Symbol)
    return symbol and letters(left) and letters(right)


def _parts(side: Any) -> list[Any]:
    if isinstance(side, sympy.Interval):
        return [side.start, side.end]
    return list(side.args) if isinstance(side, sympy.FiniteSet | sympy.Tuple) else []


def _readings(side: Any) -> list[Any]:
    """Return both readings of a percentage, as in math-verify: 0.5 and 50 for 50%."""
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
    # math-verify compares the solutions; two equations without solutions would be equal.
    return bool(sympy.solve(left, left.free_symbols))


def _same_equation(gold: sympy.Eq, answer: sympy.Eq) -> bool:
    """Return whether one equation is a multiple of the other; x=5 is accepted for 2x=10, not the reverse."""
    if isinstance(gold.lhs, sympy.Symbol) and _is_number(gold.rhs) and gold.lhs not in answer.args:
        return False
    ours, theirs = (side.lhs - side.rhs for side in (gold, answer))
    if not ours.free_symbols or ours.free_symbols != theirs.free_symbols:
        return False
    pairs = [(a, b) for a, b in _values(ours, theirs) if max(abs(a), abs(b)) > EXACT_TOLERANCE]
    return len(pairs) >= ENOUGH and all(
        abs(b) > EXACT_TOLERANCE
        and abs((a / b) / (pairs[0][0] / pairs[0][1]) - 1) < EXACT_TOLERANCE
        for a, b in pairs
    )


def _agree_exactly(left: Any, right: Any) -> bool:
    """Return whether two exact expressions have the same values at all points where both are real."""
    if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
        return False
    if left.has(sympy.Float) or right.has(sympy.Float) or left.free_symbols != right.free_symbols:
        return False
    if _is_word(left, right):
        return False
    pairs = _values(left, right)
    return len(pairs) >= (ENOUGH if left.free_symbols else 1) and all(
        a == b or abs(a - b) <= max(EXACT_TOLERANCE * max(abs(a), abs(b)), ZERO) for a, b in pairs
    )


def _values(left: Any, right: Any) -> list[tuple[Any, Any]]:
    """Return both values at each point where both are finite real numbers."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    found = []
    for first in POINTS if symbols else POINTS[:1]:
        point = {symbol: first + 2 * i for i, symbol in enumerate(symbols)}
        a, b = (side.evalf(50, subs=point) for side in (left, right))
        if all(value.is_Float or value.is_Integer or value.is_Rational for value in (a, b)):
            found.append((a, b))
    return found


def _agree(left: Any, right: Any) -> bool:
    """Return whether two expressions agree at two points, up to a relative tolerance."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    if not symbols and left.doit().is_Rational and right.doit().is_Rational:
        return bool(left.doit() == right.doit())
    decimal = left.has(sympy.Float) or right.has(sympy.Float)
    tolerance = RELATIVE_TOLERANCE if decimal else EXACT_TOLERANCE
    for first in POINTS[:2]:
        point = {symbol: first + 2 * i for i, symbol in enumerate(symbols)}
        a, b = (side.evalf(50, subs=point) for side in (left, right))
        if a != b and abs(a - b) > max(tolerance * max(abs(a), abs(b)), ZERO):
            return False
    return True


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
