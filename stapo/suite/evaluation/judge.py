r"""Worker process that judges answers by math-verify 0.9.0, with our own rules of grading.

A rule exists only for a gold answer of the six benchmarks or a published failure of math-verify, which it
names (`#14` is an issue of huggingface/Math-Verify). Its tests have a pair for
each. This module parses untrusted text: only `grading` starts it, in a process that limits its own memory and
processor time. Linux only.
"""

import logging
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.relational import _Greater as GreaterThan, _Less as LessThan

from stapo.suite.evaluation.notation import CHANGED, in_radians, rewritten, without_unit
from stapo.suite.limited import limited, serve

if TYPE_CHECKING:  # A worker has no need of Parquet.
    from stapo.suite.records.scores import Verdict

# math-verify warns that its own time limits are off; the worker has one of its own.
logging.getLogger("math_verify").setLevel(logging.ERROR)

KNOWN = {r"\frac{2x}{2}": "correct", r"\frac{x}{2}": "wrong"}
"""Answers to x and their verdicts. A broken environment must not grade: all answers would be wrong."""

DOTS = r"\\[lcvd]?dots(?![a-zA-Z])|\.\.\."
BASED = re.compile(r"(?:.*=)?\s*\(?([0-9A-Z]+)\)?\s*_\s*\{?([0-9]+)\}?")
"""A number and its base: MATH 2516_8. math-verify drops the base."""
LETTER = re.compile("[a-zA-Z]")
COMMAND = re.compile(r"\\(?:text|mathrm|mathbb|mathcal|begin|end)\w*\s*\{[^{}]*\}|\\[a-zA-Z]+")
"""A command, with its text if it has one."""
CAPITAL = re.compile(COMMAND.pattern + r"|(?P<letter>[A-Z])(?:_\{?(?P<index>\w+)\}?)?")
LAST_WORD = re.compile(r"(?<=[0-9}])\s*[a-zA-Z]+\s*$")
TEXT = re.compile(r"\\(?:text|mathrm)\w*\s*\{[^{}]*\}")
FRAME = re.compile(r"(?P<open>\(|\[|\\\{)(?P<inside>.*?)(?P<close>\)|\]|\\\})", re.DOTALL)
CLOSED_AT_INFINITY = re.compile(r"\[\s*[-+]?\s*\\infty|\\infty\s*\]")
SIGN_FUNCTIONS = sympy.Abs, sympy.Max, sympy.Min, sympy.sign
"""What depends on signs: variables are not taken to be positive beside it."""
VARIABLE = re.compile(r"[0-9][a-zA-Z](?![a-zA-Z])")
r"""OlympiadBench 6m: math-verify takes the m for a unit, as in \frac{37}{4} m of MATH."""
AS_TEXT = re.compile(r"[0-9]:[0-9]|" + DOTS)
"""Times and unfinished lists (#14), of which math-verify drops the words and the dots."""
ORDER = re.compile("[A-Z]{3,}")
RELATIVE_TOLERANCE = 1e-4
"""Numbers further apart are unequal: math-verify drops differences below 1e-6 (Minerva 4.6e-24, #14), and
tries for minutes to simplify those of large numbers (Minerva 7e37)."""


def judge(gold: str, answer: str) -> "Verdict":
    """Return our verdict on an answer."""
    try:
        return _verdict(rewritten(gold), rewritten(answer))
    except Exception:  # As in math-verify, an error of sympy means that the two are not equal.
        return "wrong"


def is_accepted(gold: str, answer: str) -> bool:
    """Return whether math-verify alone accepts an answer."""
    plain = [parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    return bool(verify(*plain, timeout_seconds=None))


def _text_verdict(gold: str, answer: str) -> bool | None:
    """Return whether texts that math-verify misreads are equal, None for all others."""
    bare, other = _bare(gold), _bare(answer)
    # Orders of letters, such as ACB, which math-verify reads as products.
    if AS_TEXT.search(gold) or (ORDER.fullmatch(gold) and ORDER.fullmatch(answer)):
        return bare == other
    # An answer without a base has that of the question.
    if (ours := BASED.fullmatch(gold)) and (theirs := BASED.fullmatch(answer)):
        return ours.groups() == theirs.groups()
    if _differ_in_brackets(gold, answer):
        return False
    return True if bare.strip("()") == other.strip("()") and TEXT.fullmatch(gold) else None


def _verdict(gold: str, answer: str) -> "Verdict":
    if (equal := _text_verdict(gold, answer)) is not None:
        return "correct" if equal else "wrong"
    # Letters but for a word at the end are variables: then the last one may be a variable, not a unit.
    plain = COMMAND.sub("", gold)
    units = VARIABLE.search(gold) is None and LETTER.search(LAST_WORD.sub("", plain)) is None
    if units and LETTER.search(plain) is None:
        if TEXT.search(gold) is None and CHANGED.fullmatch(answer):
            return "wrong"
        answer = without_unit(answer)
    texts = in_radians(gold, answer), in_radians(answer, gold)
    expected, actual = (_read(text, units) for text in _with_cases(texts))
    if expected and actual and _equal(expected, actual):
        return "correct"
    parsed = any(isinstance(value, sympy.Basic | sympy.MatrixBase) for value in actual)
    return "wrong" if parsed else "unparsable"


def _bare(text: str) -> str:
    r"""Return text without spaces, dollar signs, full stops and the frames of \text and \ldots."""
    text = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r"\1", re.sub(DOTS, "…", text))
    return re.sub(r"[\s$.~]|\\[,;:! ]", "", text).lower()


def _differ_in_brackets(gold: str, answer: str) -> bool:
    r"""Return whether lists, points, sets or intervals are of different types, as (a,b) and \{a,b\} are."""
    frames = [_frame(text) for text in (gold, answer)]
    if "" not in frames and frames[0] != frames[1]:
        return True
    # Infinity belongs to no interval.
    return CLOSED_AT_INFINITY.search(answer) is not None and CLOSED_AT_INFINITY.search(gold) is None


def _frame(text: str) -> str:
    r"""Return the brackets around a whole list of two and more parts, such as (] or \{\}; "" without any."""
    match = FRAME.fullmatch(text.strip())
    if match is None or "," not in match["inside"] or not _is_balanced(match["inside"]):
        return ""
    return match["open"] + match["close"]


def _is_balanced(text: str) -> bool:
    """Return whether no bracket closes that a text did not open."""
    depth = 0
    for bracket in re.findall(r"[()\[\]]", text):
        depth += 1 if bracket in "([" else -1
        if depth < 0:
            return False
    return depth == 0


def _with_cases(texts: Sequence[str]) -> list[str]:
    """Return gold and answer in which capitals have an index of their own if one has the small letter too.

    math-verify makes all letters small: m R^2 would be M r^2. A single letter may be of another case.
    """
    letters = [set(LETTER.findall(COMMAND.sub(" ", text))) for text in texts]
    both = {
        letter for used in letters for letter in used if letter.isupper() and letter.lower() in used
    }
    exchanged = {
        letter.upper()
        for letter in letters[0] ^ letters[1]
        if letter.swapcase() in set.union(*letters)
    }
    both |= exchanged if len(exchanged) > 1 else set()

    def marked(match: re.Match[str]) -> str:
        letter = match["letter"]
        return match[0] if letter not in both else f"{letter}_{{U{match['index'] or ''}}}"

    return [CAPITAL.sub(marked, text) if both else text for text in texts]


def _read(text: str, units: bool) -> list[Any]:
    r"""Return the readings of a whole answer as LaTeX: an expression, its text, or both.

    math-verify otherwise takes the last number or fraction of what it cannot parse for the answer (#41, #60):
    it reads Minerva \frac{1}{3} E_{1}+\frac{2}{3} E_{2} as 2/3.
    """
    normal = NormalizationConfig(
        basic_latex=True, units=units, malformed_operators=True, nits=True, boxed="all"
    )
    latex = LatexExtractionConfig(
        try_extract_without_anchor=False, boxed_match_priority=0, normalization_config=normal
    )
    options: dict[str, Any] = {"extraction_mode": "first_match", "parsing_timeout": None}
    values: list[Any] = parse(rf"\boxed{{{text}}}", [latex], **options)
    return [
        # Of dM/dt, which has no M in it, sympy makes 0.
        _replaced(value, sympy.Derivative, lambda derivative: sympy.Symbol(str(derivative)))
        for value in values
        # Everything would be equal to a pole.
        if not (isinstance(value, sympy.Basic) and value.has(sympy.zoo, sympy.nan))
    ]


def _replaced(value: Any, kind: type, replacement: Callable[[Any], Any]) -> Any:
    """Return a reading with something else for its parts of a kind, where the replacement is not None."""
    if not isinstance(value, sympy.Expr if kind is sympy.Symbol else sympy.Basic):
        return value
    terms = value.free_symbols if kind is sympy.Symbol else value.atoms(kind)
    return value.xreplace({term: new for term in terms if (new := replacement(term)) is not None})


def _equal(expected: list[Any], actual: list[Any]) -> bool:
    if _are_far(expected[0], actual[0]):
        return False
    # MATH (2,\infty) accepts x>2; relations and sets are only compared on request.
    options: dict[str, Any] = {"allow_set_relation_comp": True, "timeout_seconds": None}
    expected, actual = _as_vectors(expected, actual)
    if isinstance(expected[0], sympy.Interval | sympy.Union):
        actual = [_as_set(value) for value in actual]
    if verify(expected, actual, **options):
        return True
    if any(
        isinstance(value, sympy.Basic) and value.has(*SIGN_FUNCTIONS)
        for value in (*expected, *actual)
    ):
        return False
    for replacement, sides in (
        # The imaginary unit, as in e^{i\pi/3}; math-verify reads it in 9 i alone.
        (lambda symbol: sympy.I if symbol.name == "i" else None, all),
        # Positive variables: Minerva \sqrt{4 \pi G \rho_{0} r_{0}^{2}} and #64, \sqrt{1/n}.
        (lambda symbol: sympy.Symbol(symbol.name, positive=True), any),
    ):
        new = [
            [_replaced(value, sympy.Symbol, replacement) for value in side]
            for side in (expected, actual)
        ]
        changed = (now != old for now, old in zip(new, (expected, actual), strict=True))
        if sides(changed) and verify(*new, **options):
            return True
    return False


def _as_vectors(expected: list[Any], actual: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return readings in which a row or column is a tuple if the other side has no matrix, and an order."""
    kinds = [isinstance(side[0], sympy.MatrixBase) for side in (expected, actual)]
    if sum(kinds) != 1 or any(isinstance(side[0], sympy.FiniteSet) for side in (expected, actual)):
        return expected, actual
    return (_as_tuples(expected), actual) if kinds[0] else (expected, _as_tuples(actual))


def _as_tuples(values: list[Any]) -> list[Any]:
    return [
        sympy.Tuple(*value) if isinstance(value, sympy.MatrixBase) and 1 in value.shape else value
        for value in values
    ]


def _as_set(value: Any) -> Any:
    """Return the union of a list of inequalities with one variable, as in x < -1 or x > 2."""
    relations = value.args if isinstance(value, sympy.FiniteSet) else ()
    known = all(isinstance(relation, LessThan | GreaterThan) for relation in relations)
    if len(relations) < 2 or not known or len(value.free_symbols) != 1:
        return value
    return sympy.Union(*(relation.as_set() for relation in relations))


def _are_far(expected: Any, actual: Any) -> bool:
    """Return whether two values are certainly different numbers; percentages have two values."""
    for value in (expected, actual):
        if not isinstance(value, sympy.Expr) or value.free_symbols:
            return False
        if value.has(sympy.UnevaluatedExpr):
            return False
    ours, theirs = expected.evalf(30), actual.evalf(30)
    with suppress(TypeError):  # Infinity and what is not a number.
        return bool(abs(ours - theirs) > RELATIVE_TOLERANCE * sympy.Max(abs(ours), abs(theirs)))
    return False


def main(memory_bytes: int, seconds: float) -> None:
    """Write two lines of JSON for each pair of gold and answer on standard input: verdict, math-verify's.

    `memory_bytes` limits the address space, `seconds` the processor time of each line.
    """
    verdicts = limited(memory_bytes)
    if {answer: judge("x", answer) for answer in KNOWN} != KNOWN:
        sys.exit("the grader misjudges known answers; check the versions of sympy and math-verify")
    serve(verdicts, seconds, judge, is_accepted)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
