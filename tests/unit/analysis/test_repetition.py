"""Repetition in texts whose repetition is known."""

import random
import time

import pytest

from stapo.analysis.repetition import ends_in_loop, repeated_grams, repetition
from stapo.records.responses import AnsweredProblem


def test_repeated_4_grams_are_counted_by_hand():
    assert repeated_grams("a b c d") == 0
    assert repeated_grams("a b c") == repeated_grams("") == 0
    # a b c d, b c d a, c d a b, d a b c, a b c d: 4 of 5 are unique.
    assert repeated_grams("a b c d a b c d") == pytest.approx(1 / 5)
    # Signs are words: "= 1 = 1 = 1" has 3 grams, 2 of them unique.
    assert repeated_grams("=1=1=1") == pytest.approx(1 / 3)
    assert repeated_grams("1 " * 1000) == pytest.approx(1 - 1 / 997)


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("so 3+4=7. " + "wait, 3+4=8. " * 9, True),
        ("so 3+4=7. " + "wait, 3+4=8. " * 9 + "wait, 3", True),  # cut in the middle
        ("begin " + "0" * 50, True),
        ("so 3+4=7. " + "wait, 3+4=8. " * 9 + "then 5", False),
        ("abcdefgh" * 2, False),
        ("a sentence that says something else with every word", False),
        ("", False),
        ("a", False),
    ],
)
def test_a_loop_is_the_same_text_three_times_up_to_the_end(text, loops):
    assert ends_in_loop(text) is loops


def answered(problems, samples, text="x", truncated=True):
    column = [text] * samples
    return [
        AnsweredProblem(i, "q", "g", column, [1] * samples, [truncated] * samples, ["e"])
        for i in range(problems)
    ]


def test_a_loop_that_ends_by_itself_is_not_one():
    text = "wait, 3+4=8. " * 9
    assert repetition(answered(2, 2, text)).looping == 1
    assert repetition(answered(2, 2, text, truncated=False)).looping == 0
    assert repetition(answered(2, 2, text)).repeated == pytest.approx(repeated_grams(text))


def test_a_long_response_costs_milliseconds():
    rng = random.Random(0)
    text = " ".join(str(rng.randrange(9)) for _ in range(40_000))
    hostile = "ab" * 40_000 + "c"
    start = time.process_time()
    for one in (text, hostile, "a" * 80_000):
        repeated_grams(one)
        ends_in_loop(one)
    assert time.process_time() - start < 0.5
