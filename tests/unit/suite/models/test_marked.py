"""The marks of a response's tokens: those of the builder, and of responses that a model might write."""

from random import Random

import pytest

from stapo.suite.models.marked import (
    DETOUR,
    END,
    MARKS,
    SLIP,
    SOUND,
    UNREAD,
    WORD,
    chain,
    marks,
    parsed,
    solution,
)
from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.models.worlds import WORLDS, marks_of

TOKENIZER = build_tokenizer(WORLDS["marked-chains"])


def tokens(text: str) -> list[str]:
    return TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode(text))


def marked(response: str) -> list[tuple[str, str]]:
    """The tokens of a response to `chain:6a+9b*3?` that are not sound, with their marks."""
    found = tokens(response)
    ids = (TOKENIZER.encode(text) for text in ("chain:6a+9b*3?", response))
    both = zip(found, marks_of(TOKENIZER)(*ids), strict=True)
    return [(token, mark) for token, mark in both if mark != SOUND]


def test_marks_of_solutions_are_those_that_the_builder_gave_them():
    rng, seen = Random(0), set()
    for _ in range(3000):
        problem = chain(12, rng)
        assert parsed(tokens(problem.question)).operations == problem.operations
        built = [*solution(problem, rng, 0.3), (END, SOUND)]
        response, expected = zip(*built, strict=True)
        assert marks(tokens(problem.question), response) == list(expected)
        seen |= set(expected)
    assert seen == set(MARKS) - {UNREAD}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (" so a+9 bake =5;b*3=5.\\boxed{5}<eos>", [(" so ", WORD), (" bake ", WORD)]),
        # A wrong result, and what follows from it is sound.
        ("a+9=4;b*3=2.\\boxed{2}<eos>", [("4", SLIP)]),
        ("a+9=5;b*3=4; no b*3=5.\\boxed{5}<eos>", [("4", DETOUR), (";", DETOUR)]),
        ("a+9=5; no a+9=5;b*3=5.\\boxed{5}<eos>", [(one, DETOUR) for one in (" no ", *"a+9=5")]),
        ("a-9=7;b*3=1.\\boxed{1}<eos>", [("-", SLIP)]),
        ("a+9=5;b*3=5.\\boxed{4}<eos>", [("4", SLIP)]),
        ("a+9=5.\\boxed{5}<eos>", [(".", SLIP)]),
        ("b*3=8.\\boxed{8}<eos>", [("b", SLIP)]),
        ("\\boxed{5}<eos>", [("\\boxed{", SLIP), ("5", SLIP)]),
        ("a=+9;b*3=8.", [("=", SLIP), ("+", UNREAD), ("9", UNREAD), (";", UNREAD)]),
    ],
)  # fmt: skip
def test_marks_of_single_responses(response, expected):
    assert marked(response) == expected
