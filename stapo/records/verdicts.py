"""Names of the verdicts on a response in score files."""

from typing import Literal, get_args

Verdict = Literal["correct", "wrong", "no_box", "unparsable", "timeout", "crash"]
"""Verdicts of the rule-based grader; `timeout` and `crash` are failures of the grader and count as wrong."""
FAILURES: tuple[Verdict, ...] = ("timeout", "crash")

Opinion = Literal["accepted", "rejected", "invalid"]
"""Verdicts of the verifier on a response that the rule-based grader rejects."""
OPINIONS: tuple[Opinion, ...] = get_args(Opinion)
VerifierVerdict = Literal[Opinion, "not_asked"]
