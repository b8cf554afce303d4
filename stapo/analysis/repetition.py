"""Repetition in responses: definitions of docs/stability.md."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from stapo.records.responses import AnsweredProblem

WORD = re.compile(r"\w+|[^\w\s]")
GRAM = 4
WORDS, CHARACTERS = 1024, 16384
"""End of a response in which n-grams are counted, at most: words, in these characters."""
TAIL = 4096
"""End of a response that is searched for a loop, at most, in characters."""
REPEATS = 3
"""How often a loop is in that end, at least."""
RESPONSES = 512
"""Responses to a benchmark that are read, at most; the first samples of every problem, at least one."""


class Repetition(NamedTuple):
    """Repetition in some responses."""

    repeated: float
    """Mean share of repeated 4-grams."""
    looping: float
    """Share of the responses that loop until they are truncated."""


def repetition(problems: Iterable[AnsweredProblem]) -> Repetition:
    """Return the repetition in the responses to a benchmark, of which at most `RESPONSES` are read."""
    problems = list(problems)
    each = max(1, RESPONSES // len(problems))
    read = [sample for one in problems for sample in islice(one.samples(), each)]
    return Repetition(
        repeated=sum(repeated_grams(one.text) for one in read) / len(read),
        looping=sum(one.truncated and ends_in_loop(one.text) for one in read) / len(read),
    )


def repeated_grams(text: str) -> float:
    """Return 1 - unique 4-grams / 4-grams at the end of a text; 0 without a 4-gram.

    Source: seq-rep-4 of arXiv 1908.04319, there of the tokens of a continuation.
    """
    words = WORD.findall(text[-CHARACTERS:])[-WORDS:]
    grams = [*zip(*(words[i:] for i in range(GRAM)), strict=False)]
    return 1 - len({*grams}) / len(grams) if grams else 0.0


def ends_in_loop(text: str) -> bool:
    """Return whether the second half of a text, at most `TAIL` characters, repeats one text to its end."""
    tail = text[-min(TAIL, len(text) // 2) :] if len(text) > 1 else ""
    return bool(tail) and REPEATS * _period(tail) <= len(tail)


def _period(text: str) -> int:
    """Return the smallest p > 0 with text[i] == text[i + p] for all i, in linear time."""
    border = [0] * len(text)
    length = 0
    for i in range(1, len(text)):
        while length and text[i] != text[length]:
            length = border[length - 1]
        length += text[i] == text[length]
        border[i] = length
    return len(text) - border[-1]
