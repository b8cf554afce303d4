"""Generated problems are right, reproducible, and their two halves are disjoint."""

import re
from itertools import islice
from random import Random

import pytest

from stapo.suite.models.tiny import build_tokenizer
from stapo.suite.models.word_problems import LOSES, NAMES
from stapo.suite.models.worlds import (
    FAMILIES,
    TRAINED,
    WORLDS,
    benchmark_problems,
    is_held_out,
    training_problems,
)


def evaluate_words(question: str) -> int:
    """The answer of a word problem, worked out from its words alone."""
    text, asked = question.rsplit(". ", 1)
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if "together" in asked:
        return sum(numbers)
    if " more " in asked:
        return numbers[0] - numbers[1]
    if "in each" in text:
        return numbers[0] * numbers[1]
    if " gives " in text and " to " in text:
        return numbers[1] + numbers[2]
    if text.count(" has ") == 1:
        lost = numbers.pop() if any(f" {word} " in text for word in LOSES) else 0
        return sum(numbers) - lost
    # One of the facts, whatever happens to the others.
    thing, who = re.fullmatch(r"How many (\w+) does (\w+) have\?", asked).groups()
    return int(re.search(rf"{who} has (\d+) {thing}", text)[1])


def evaluate(question: str) -> int:
    """The answer, worked out from the text of the question alone."""
    if question.startswith("chain:"):
        first, *rest = re.findall(r"\d+|[-+*]", question)
        value, modulus = int(first), 10 ** len(first)
        for sign, digit in zip(rest[::2], map(int, rest[1::2]), strict=True):
            value = {"+": value + digit, "-": value - digit, "*": value * digit}[sign] % modulus
        return value
    if question.startswith(NAMES):
        return evaluate_words(question)
    a, b, c = map(int, re.fullmatch(r"(\d)x\+(\d)=(\d+)\?", question).groups())
    assert (c - b) % a == 0
    return (c - b) // a


@pytest.mark.parametrize("family", FAMILIES)
def test_benchmarks_are_right_distinct_and_held_out(family):
    problems = benchmark_problems(family, 100)
    assert len({problem.question for problem in problems}) == 100
    assert all(evaluate(problem.question) == problem.answer for problem in problems)


@pytest.mark.parametrize("builder", TRAINED)
def test_training_problems_are_right_never_held_out_and_fit_into_the_context(builder):
    problems, rng = list(islice(training_problems(0, builder), 2000)), Random(0)
    assert not any(is_held_out(problem.question) for problem in problems)
    assert all(evaluate(problem.question) == problem.answer for problem in problems)
    if world := WORLDS.get(builder):
        assert {problem.family for problem in problems} == set(world.families)
        tokenizer = build_tokenizer(world)
        for problem in problems:
            ids = tokenizer.encode(text := problem.question + world.write(problem, rng, 0.8))
            assert (len(ids) < world.context, tokenizer.decode(ids)) == (True, text)
