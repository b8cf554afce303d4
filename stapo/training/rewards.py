"""The training reward behind TRL's signature."""

from collections.abc import Sequence
from typing import Any

from stapo.evaluation.grading import last_boxed

RIGHT, WRONG = 1.0, -1.0
TAIL = 100
"""Characters at the end of a response in which the box must stand."""


def boxed_reward(
    completions: Sequence[Sequence[dict[str, str]]], answer: Sequence[str], **_: Any
) -> list[float]:
    r"""Return +1 where the last \boxed{...} at the end of a response is the answer, else -1.

    The content is compared as a string: no symbolic mathematics in the training reward.

    Args:
        completions: one conversation per response, the last message being the response.
        answer: the ground truth of each response's prompt.

    Source: JustRL's variant of the DAPO verifier: the last 100 characters of the last 300.
    """
    contents = [conversation[-1]["content"] for conversation in completions]
    return [
        RIGHT if last_boxed(content[-TAIL:]) == truth else WRONG
        for content, truth in zip(contents, answer, strict=True)
    ]
