"""The verdicts on a response, by their names in the files of scores."""

from typing import Literal, get_args

Verdict = Literal["correct", "wrong", "no_box", "unparsable", "timeout", "crash"]
"""Of the rules; `timeout` and `crash` say that the grader itself failed, which counts as wrong."""
FAILURES: tuple[Verdict, ...] = ("timeout", "crash")

Opinion = Literal["accepted", "rejected", "invalid"]
"""Of the verifier, on a response that the rules reject."""
OPINIONS: tuple[Opinion, ...] = get_args(Opinion)
VerifierVerdict = Literal[Opinion, "not_asked"]
