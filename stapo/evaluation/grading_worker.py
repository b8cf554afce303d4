"""The process in which math-verify meets untrusted answers; run by `grading`, one line per answer."""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify
from sympy import FiniteSet, Interval, N, Tuple
from sympy.core.basic import Basic

RELATIVE_TOLERANCE = 1e-4
"""math-verify rounds to six decimals, so that all tiny numbers are equal to it."""


def judge(gold: str, answer: str) -> str:
    """Return correct, wrong, unparsable or crash."""
    try:
        expected, found = _parse(gold), _parse(answer)
        if not found:
            return "unparsable"
        equal = verify(expected, found, timeout_seconds=None, raise_on_error=True)
        return "correct" if equal and _plausible(expected[0], found[0]) else "wrong"
    # Hostile text: whatever math-verify and sympy throw at it is the answer's doing.
    except (Exception, RecursionError):
        return "crash"


def _parse(text: str) -> list[Any]:
    # LaTeX only: the other extraction of math-verify hands text to Python's eval.
    parsed: list[Any] = parse(
        rf"\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig(boxed_match_priority=0)],
        parsing_timeout=None,
    )
    return parsed


def _plausible(expected: Any, found: Any) -> bool:
    """Reject what math-verify is known to take for equal: far numbers, an interval and a set."""
    if isinstance(expected, Interval) != isinstance(found, Interval) and any(
        isinstance(side, FiniteSet | Tuple) for side in (expected, found)
    ):
        return False
    if not (_is_number(expected) and _is_number(found)):
        return True
    left, right = N(expected, 30), N(found, 30)
    return bool(abs(left - right) <= RELATIVE_TOLERANCE * max(abs(left), abs(right)))


def _is_number(value: Any) -> bool:
    return isinstance(value, Basic) and bool(getattr(value, "is_number", False))


def main() -> None:
    """Answer each line of standard input, a JSON list of gold and answer, by a JSON verdict."""
    # Nothing that a library prints may pass for a verdict.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    judge("1", r"\frac{1}{2}")
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit += int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(judge(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
