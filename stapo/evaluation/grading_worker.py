r"""The process in which math-verify sees a hostile answer: started, limited and killed by `grading`.

What is written is `notation`'s; here is what it is worth. math-verify 0.9.0 takes unequal things for equal:

- 4 = 4\u221a(2), 3*x-1*y+13=0 = 3x+4y+14=0: what is no LaTeX falls back to the last number in the text,
  and to Python's eval. Only its LaTeX reader is used, on the whole of the text.
- 1/2^{99} = 1/2^{98}, x+2^{-99} = x+2^{-98}: differences below 1e-15 are chopped; 1e-7 = 2e-7: decimals
  are rounded to six places. `_agree` compares relative to the size, with 50 digits.
- (1,2) = \{1,2\}: meant for roots in parentheses. Refused where the set has braces.
- x^2+1=0 = x^2+2=0: two equations without real solutions have the same solutions. `_same_relation`.
- 5 = `2+2=5`, 5 = `5\approx 7`: one side of a chain is taken. `_judge_chain` asks all of them.

Measured on 18,000 pairs of `tests/grading_fuzz.py`, of which 8,260 are equal: 0 wrong accepts and 0 wrong
rejects; before marks, bases, chains and units were read, 3,359 and 1,222.

Known and left. Wrong accepts: 50\% is 50 and 0.5 and the reverse; degree signs and units in \text are not
compared; capital and small letters are the same; the left side of an equation may be anything, so that
`2x=10` is accepted for 10; (2,4) is a point and an interval. Wrong rejects: `5` for 2x=10; `2x=10` for x=5;
`1/2 x` is 1/(2x) to the reader, unlike `(1)/(2) x`; a unit of one letter outside of \text is a factor.
It swallows a MemoryError of its reader, which then counts as unparsable. Braces are counted in `last_boxed`
whether escaped or not: a box with \left\{ ... \right. does not close. Linux only: memory is read from /proc.
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
"""Between exact expressions evaluated to 50 digits."""
ZERO = 1e-90
"""sympy gives up on a sum that cancels at 100 digits; what it then returns is noise."""
BRACED = re.compile(r"\s*(\\left)?\s*\\(\{|lbrace)")
POINTS = tuple(sympy.Rational(*point) for point in ((7, 1), (12, 1), (19, 7), (-11, 3), (-23, 9)))
"""Where expressions with variables are compared: whole, broken and negative."""
START_SECONDS = 60.0
"""Of processor time, for the first answers."""
ENOUGH = 2
"""Points at which both sides must have real values before they decide that two expressions are equal."""


class TwoStageParser(latex2sympy2.PSParser):  # type: ignore[misc]
    """Predicts without the full context first: five times faster.

    ANTLR guarantees that this gives the same tree or a syntax error; then the full context decides.
    """

    def math(self) -> Any:
        """Return the tree of the whole input."""
        # All tokens now: a second attempt would go on behind the characters that are none.
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
        r"""Raise on \\newline, of which the lexer makes \\ne and letters."""
        text = str(self._input.tokenSource.inputStream)
        for token in self._input.tokens:
            if re.fullmatch(r"\\[a-zA-Z]+", token.text) and text[token.stop + 1 :][:1].isalpha():
                raise ValueError(f"unknown command at {token.text}")


latex2sympy2.PSParser = TwoStageParser


def _serve(memory_bytes: int) -> None:
    """Answer each request on standard input by the verdict and whether this worker is worn."""
    # Nothing that a library prints may pass for a verdict.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Nobody handles the signal: at its limit the kernel ends this process, even within one multiplication.
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
    # An environment in which right is not right must not grade: everything would be wrong, and nobody told.
    if [_judge("x", a) for a in (r"\frac{2x}{2}", r"\frac{x}{2}")] != ["correct", "wrong"]:
        sys.exit("the grader does not grade")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        gold, answer, seconds = json.loads(line)
        # What sympy remembers and draws is the same before each answer, whatever came before it.
        clear_cache()
        seed(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        verdict = _judge(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        # What is kept of one answer must not starve the next.
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
    except Exception:  # What sympy throws at a comparison means "not equal", as in math-verify.
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
        return "correct"  # Also of what cannot be read.
    if not _is_number(expected):
        answer = notation.NAMED.sub(r"\1=", answer)
    if notation.APPROXIMATELY.search(answer) and not notation.APPROXIMATELY.search(gold):
        return "wrong"
    found = _read(answer, imaginary)
    if expected is None or found is None:
        return "unparsable" if found is None else "wrong"
    return "correct" if _equal(gold, answer, expected, found) else "wrong"


def _read(text: str, imaginary: bool) -> Any:
    """Return the meaning of simplified text, None where it has none."""
    try:
        return latex2sympy2.latex2sympy(
            text, is_real=not imaginary, convert_degrees=False, normalization_config=None
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


_read_gold = functools.lru_cache(maxsize=256)(_read)
"""Many answers are held against one gold. What it means depends on nothing but its text."""


def _is_number(side: Any) -> bool:
    return isinstance(side, sympy.Expr) and not side.free_symbols


def _judge_chain(expected: Any, chain: list[str], imaginary: bool) -> Verdict:
    r"""Judge S = 2+3 = 5 or \pi\approx 3.14 for a number: all numbers in it agree, and one is the gold's.

    A name, a sum that is not worked out and what cannot be read stand for what the chain is about.
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
        # Rounded or cut off after the last digit that is written.
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
    """Return the set that x<2 or x>3 is; anything else as it is."""
    inequality = sympy.Lt | sympy.Le | sympy.Gt | sympy.Ge
    listed = isinstance(side, sympy.FiniteSet) and len(side.free_symbols) == 1
    if listed and all(isinstance(part, inequality) for part in side.args):
        return sympy.Union(*(part.as_set() for part in side.args))
    return side


def _opinion(gold: str, answer: str, expected: Any, found: Any) -> bool | None:
    """Return whether two values are equal where that is sure without math-verify; None where it decides."""
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
    except Exception:  # No number comes out, or sympy cannot say which is larger.
        return None


def _same(left: Any, right: Any) -> bool:
    """Return False where two values differ for sure."""
    if isinstance(left, sympy.Eq) != isinstance(right, sympy.Eq):
        # x=5 and 5 are the same to math-verify.
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
    """Return whether letters are compared, not values: Evelyn is a symbol or a product of symbols."""

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


def _same_equation(gold: sympy.Eq, answer: sympy.Eq) -> bool:
    """Return whether one equation is the other times a number; x=5 for 2x=10, but not the reverse."""
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
    """Return whether two exact expressions have the same values wherever both have real ones."""
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
    """Return both values at each of the points where both are finite real numbers."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    found = []
    for first in POINTS if symbols else POINTS[:1]:
        point = {symbol: first + 2 * i for i, symbol in enumerate(symbols)}
        a, b = (side.evalf(50, subs=point) for side in (left, right))
        if all(value.is_Float or value.is_Integer or value.is_Rational for value in (a, b)):
            found.append((a, b))
    return found


def _agree(left: Any, right: Any) -> bool:
    """Compare by value, relative to the size, at two points of the symbols."""
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
