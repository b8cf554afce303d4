"""Functions of Python as answers: judged by calling them, in a sandbox, with the arguments of tests.

The gold answer is JSON: the function's name, and tests as pairs of arguments and result. The code gets the
arguments alone. Results are compared here, as JSON, so that code which ends early, prints what it likes or
changes Python itself only gives a wrong result.
"""

import json
import platform
import shutil
from keyword import iskeyword
from typing import Literal

from stapo.suite.sandbox.bubblewrap import MOST_BYTES, REFUSED, run

FORM = '{"function": NAME, "tests": [[ARGUMENTS, RESULT], ...]}'
TRIAL = json.dumps({"function": "f", "tests": [[[1], 2]]}), "def f(x):\n    return x + 1"


def missing() -> str | None:
    """Return why no function can be judged on this machine, None if one can."""
    if platform.machine() not in REFUSED:
        return f"no sandbox for a processor {platform.machine()}; use {' or '.join(REFUSED)}"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: run `apt install bubblewrap`"
    try:
        verdict = judge(*TRIAL)
    except RuntimeError:
        verdict = "wrong"
    why = "`bwrap --unshare-user --ro-bind / / true` may say why"
    return None if verdict == "correct" else f"Python does not run in bubblewrap here: {why}"


def gold_fault(gold: str) -> str | None:
    """Return why no function can pass the tests of a gold answer, None if one can."""
    told = f"are no tests, {FORM}"
    try:
        row = json.loads(gold)
        are_tests = row.keys() == {"function", "tests"} and bool(row["tests"])
        are_tests &= all(isinstance(arguments, list) for arguments, _ in row["tests"])
        if not are_tests:
            return told
        is_name = row["function"].isidentifier() and not iskeyword(row["function"])
        return None if is_name else "name a function that Python cannot define"
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return told


def judge(gold: str, code: str) -> Literal["correct", "wrong", "timeout"]:
    """Return whether the function of a code returns all results that a gold answer expects.

    Raises:
        ValueError: the gold answer has no tests.
        RuntimeError: there is no sandbox.
    """
    if fault := gold_fault(gold):
        raise ValueError(f"gold answers {fault}; read them otherwise")
    row = json.loads(gold)
    arguments, expected = zip(*row["tests"], strict=True)
    written, is_late = run({"code": code, "function": row["function"], "arguments": arguments})
    try:
        # Recursion: lists in lists. Value: no JSON, or an integer of more than 4,300 digits.
        if len(written) <= MOST_BYTES and json.loads(written) == [*expected]:
            return "correct"
    except (ValueError, RecursionError):
        pass
    return "timeout" if is_late else "wrong"
