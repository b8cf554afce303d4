r"""Worker process that judges answers by math-verify 0.9.0, with our own rules of grading.

A rule exists only for a gold answer of the six benchmarks or a published failure of math-verify, which it
names (`#14` is an issue of huggingface/Math-Verify). `tests/unit/evaluation/test_judge.py` has a pair for
each. This module parses untrusted text: only `grading` starts it, in a process that limits its own memory and
processor time. Linux only.
"""

import json
import logging
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.cache import clear_cache
from sympy.core.random import seed

if TYPE_CHECKING:  # A worker has no need of Parquet.
    from stapo.records.scores import Verdict

# math-verify warns that its own time limits are off; the worker has one of its own.
logging.getLogger("math_verify").setLevel(logging.ERROR)

KNOWN = {r"\frac{2x}{2}": "correct", r"\frac{x}{2}": "wrong"}
"""Answers to x and their verdicts. A broken environment must not grade: all answers would be wrong."""
START_SECONDS = 60.0

SCIENTIFIC = re.compile(
    r"(?<![\w.])([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))[eE]\+?(-?)0*([0-9]+)(?!\.?\w)"
)
DOTS = r"\\[lcvd]?dots(?![a-zA-Z])|\.\.\."
REWRITING = (
    # Full stop of a sentence: math-verify reads "12." as text.
    (re.compile(r"(?<=[^\s.\\])\s*\.\s*$"), ""),
    # Minerva 4.5e33, read as 4.5 times e times 33.
    (SCIENTIFIC, r"\1\\times10^{\2\3}"),
    # Minerva -1./3 and np.arcsin(10/13), which cannot be parsed.
    (re.compile(r"(?<=[0-9])\./"), "/"),
    (re.compile(r"\bnp\.(?=[a-z])"), r"\\"),
    # Minerva 1.25 as \text{1.25}: #37 is solved for integers only.
    (re.compile(r"\\text\s*\{\s*([-+]?[0-9]*\.[0-9]+)\s*\}"), r"\1"),
    # MATH 10,\!080 with thin spaces instead of commas.
    (re.compile(r"(?<=[0-9])\\[,;: ](?=[0-9]{3}(?![0-9]))"), ""),
    # MATH 6+9i: only a separate i is read as the imaginary unit, so that 6+9i and 6+9 i differ.
    (re.compile(r"(?<=[0-9])i(?![a-zA-Z])"), " i"),
    # Minerva y^{\prime}+r y-r x(t)=0 with an apostrophe.
    (re.compile(r"(?<=[a-zA-Z])'"), r"^{\\prime}"),
    # Minerva E_{1},E_{2}: E is read as Euler's number, which has no index.
    (re.compile(r"(?<![a-zA-Z\\])E_"), r"\\Xi_"),
    # OlympiadBench m_{\max } and Minerva L_{\odot}: a command as index cannot be parsed.
    (re.compile(r"_\s*\{\s*\\(max|min|odot)\s*\}"), r"_{\1}"),
)
"""Patterns in golds and answers -> what math-verify reads in the same way."""

INDEXED = re.compile(r"([0-9A-Z]+)\)?\s*_\s*\{?([0-9]+)\}?")
"""A number and its base: MATH 2516_8. math-verify drops the base."""
VARIABLE = re.compile(r"[0-9][a-zA-Z](?![a-zA-Z])")
r"""OlympiadBench 6m: math-verify takes the m for a unit, as in \frac{37}{4} m of MATH."""
AS_TEXT = re.compile(r"[0-9]:[0-9]|" + DOTS)
"""Times and unfinished lists (#14), of which math-verify drops the words and the dots."""
RELATIVE_TOLERANCE = 1e-4
"""Numbers further apart are unequal: math-verify drops differences below 1e-6 (Minerva 4.6e-24, #14), and
tries for minutes to simplify those of large numbers (Minerva 7e37)."""


def judge(gold: str, answer: str) -> "tuple[Verdict, bool]":
    """Return our verdict on an answer, and whether math-verify alone accepts it."""
    plain = [parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    accepted = bool(verify(*plain, timeout_seconds=None))
    try:
        return _verdict(_rewritten(gold), _rewritten(answer)), accepted
    except Exception:  # As in math-verify, an error of sympy means that the two are not equal.
        return "wrong", accepted


def _rewritten(text: str) -> str:
    text = text.strip()
    for pattern, replacement in REWRITING:
        text = pattern.sub(replacement, text)
    return text


def _verdict(gold: str, answer: str) -> "Verdict":
    if AS_TEXT.search(gold):
        return "correct" if _bare(gold) == _bare(answer) else "wrong"
    # An answer without a base has that of the question.
    if (bases := INDEXED.findall(answer)) and INDEXED.search(gold):
        return "correct" if bases[-1] == INDEXED.findall(gold)[-1] else "wrong"
    units = VARIABLE.search(gold) is None
    expected, found = _read(gold, units), _read(answer, units)
    if expected and found and _equal(expected, found):
        return "correct"
    parsed = any(isinstance(value, sympy.Basic | sympy.MatrixBase) for value in found)
    return "wrong" if parsed else "unparsable"


def _bare(text: str) -> str:
    r"""Return text without spaces, dollar signs, full stops and the frames of \text and \ldots."""
    text = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r"\1", re.sub(DOTS, "…", text))
    return re.sub(r"[\s$.~]|\\[,;:! ]", "", text).lower()


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
    found: list[Any] = parse(rf"\boxed{{{text}}}", [latex], **options)
    return found


def _equal(expected: list[Any], found: list[Any]) -> bool:
    if _are_far(expected[0], found[0]):
        return False
    # MATH (2,\infty) accepts x>2; relations and sets are only compared on request.
    options: dict[str, Any] = {"allow_set_relation_comp": True, "timeout_seconds": None}
    if verify(expected, found, **options):
        return True
    # Minerva \sqrt{4 \pi G \rho_{0} r_{0}^{2}} and #64, \sqrt{1/n}: variables are positive.
    positive = [[_positive(value) for value in side] for side in (expected, found)]
    return positive != [expected, found] and bool(verify(*positive, **options))


def _are_far(expected: Any, found: Any) -> bool:
    """Return whether two values are certainly different numbers; percentages have two values."""
    for value in (expected, found):
        if not isinstance(value, sympy.Expr) or value.free_symbols:
            return False
        if value.has(sympy.UnevaluatedExpr):
            return False
    ours, theirs = expected.evalf(30), found.evalf(30)
    with suppress(TypeError):  # Infinity and what is not a number.
        return bool(abs(ours - theirs) > RELATIVE_TOLERANCE * sympy.Max(abs(ours), abs(theirs)))
    return False


def _positive(value: Any) -> Any:
    if not isinstance(value, sympy.Expr):
        return value
    return value.xreplace({s: sympy.Symbol(s.name, positive=True) for s in value.free_symbols})


def main(memory_bytes: int, seconds: float) -> None:
    """Write the judgement of each pair of gold and answer on standard input as a line of JSON.

    `memory_bytes` limits the address space, `seconds` the processor time per answer.
    """
    # Output of libraries goes to stderr, so that it cannot be taken as a verdict.
    verdicts = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Without a handler, the kernel ends this process at its limit, even within one multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, START_SECONDS)
    if {answer: judge("x", answer)[0] for answer in KNOWN} != KNOWN:
        sys.exit("the grader misjudges known answers; check the versions of sympy and math-verify")
    print("ready", file=verdicts, flush=True)
    for line in sys.stdin:
        # Reset sympy's cache and random numbers, so that a verdict does not depend on earlier answers.
        clear_cache()
        seed(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        judgement = judge(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(judgement), file=verdicts, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
