"""The training reward behind TRL's signature."""

from collections.abc import Sequence
from typing import Any

from stapo.evaluation.grading import last_boxed

RIGHT, WRONG = 1.0, -1.0
TAIL = 100
"""Characters at the end of a response in which the box must stand."""


def boxed_reward(
    completions: Sequence[str | Sequence[dict[str, str]]], answer: Sequence[str], **_: Any
) -> list[float]:
    r"""Return +1 where the last \boxed{...} at the end of a response is the answer, else -1.

    The content is compared as a string: no symbolic mathematics in the training reward.

    Args:
        completions: the responses, as text or as conversations whose last message they are.
        answer: the ground truth of each response's prompt.

    Source: JustRL's variant of the DAPO verifier: the last 100 characters of the last 300.
    """
    contents = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [
        RIGHT if last_boxed(content[-TAIL:]) == truth else WRONG
        for content, truth in zip(contents, answer, strict=True)
    ]
