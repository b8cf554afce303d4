"""The tiny world is right, reproducible, and its two halves are disjoint."""

import re
from itertools import islice
from random import Random

import pytest

from stapo.models.tiny import build_tokenizer
from stapo.models.worlds import FAMILIES, WORLDS, benchmark_problems, is_held_out, training_problems


def evaluate(question: str) -> int:
    """The answer, worked out from the text of the question alone."""
    if question.startswith("chain:"):
        first, *rest = re.findall(r"\d+|[-+*]", question)
        value, modulus = int(first), 10 ** len(first)
        for sign, digit in zip(rest[::2], map(int, rest[1::2]), strict=True):
            value = {"+": value + digit, "-": value - digit, "*": value * digit}[sign] % modulus
        return value
    a, b, c = map(int, re.fullmatch(r"(\d)x\+(\d)=(\d+)\?", question).groups())
    assert (c - b) % a == 0
    return (c - b) // a


@pytest.mark.parametrize("family", FAMILIES)
def test_benchmarks_are_right_distinct_and_held_out(family):
    problems = benchmark_problems(family, 100)
    assert len({problem.question for problem in problems}) == 100
    assert all(evaluate(problem.question) == problem.answer for problem in problems)


@pytest.mark.parametrize("world", WORLDS)
def test_training_problems_are_right_never_held_out_and_fit_into_the_context(world):
    tokenizer, rng = build_tokenizer(WORLDS[world]), Random(0)
    problems = list(islice(training_problems(0, world), 2000))
    assert not any(is_held_out(problem.question) for problem in problems)
    assert {problem.family for problem in problems} == set(WORLDS[world].families)
    for problem in problems:
        assert evaluate(problem.question) == problem.answer
        written = WORLDS[world].write(problem, rng, 0.8)
        ids = tokenizer.encode(text := problem.question + written)
        assert (len(ids) < WORLDS[world].context, tokenizer.decode(ids)) == (True, text)
