"""The tiny world is right, reproducible, and its two halves are disjoint."""

import re
from itertools import islice
from random import Random

import pytest

from stapo.models.arithmetic import (
    FAMILIES,
    FILLERS,
    VOCABULARY,
    WORLDS,
    benchmark_problems,
    is_held_out,
    sloppy_solution,
    training_problems,
)
from stapo.models.tiny import CONTEXT, build_tokenizer


def evaluate(question: str) -> int:
    """The answer, worked out from the text of the question alone."""
    if question.startswith("chain:"):
        first, *rest = re.findall(r"\d+|[-+*]", question)
        value, modulus = int(first), 10 ** len(first)
        for sign, digit in zip(rest[::2], rest[1::2], strict=True):
            value = {"+": value + int(digit), "-": value - int(digit), "*": value * int(digit)}[
                sign
            ] % modulus
        return value
    a, b, c = map(int, re.fullmatch(r"(\d)x\+(\d)=(\d+)\?", question).groups())
    assert (c - b) % a == 0
    return (c - b) // a


@pytest.mark.parametrize("family", FAMILIES)
def test_benchmarks_are_right_distinct_and_held_out(family):
    problems = benchmark_problems(family, 100)
    assert len({problem.question for problem in problems}) == 100
    assert all(is_held_out(problem.question) for problem in problems)
    assert all(evaluate(problem.question) == problem.answer for problem in problems)
    assert [p.question for p in benchmark_problems(family, 100)] == [p.question for p in problems]


def test_training_problems_are_right_and_never_held_out():
    problems = list(islice(training_problems(0), 3000))
    assert not any(is_held_out(problem.question) for problem in problems)
    assert all(evaluate(problem.question) == problem.answer for problem in problems)
    assert {problem.family for problem in problems} == set(WORLDS["tiny-arithmetic"])


@pytest.mark.parametrize("world", ["long-arithmetic", "wide-arithmetic"])
def test_a_world_has_its_families_alone_and_fits_into_the_context(world):
    tokenizer, rng = build_tokenizer(), Random(0)
    problems = list(islice(training_problems(0, world), 3000))
    assert {problem.family for problem in problems} == set(WORLDS[world])
    assert all(evaluate(problem.question) == problem.answer for problem in problems)
    longest = max(
        len(tokenizer.encode(p.question + sloppy_solution(p, rng, 0.8))) for p in problems
    )
    assert longest < CONTEXT


def test_solutions_are_sloppy_in_the_intended_ways():
    rng, problems = Random(0), training_problems(1)
    solutions = [(p, sloppy_solution(p, rng, 0.8)) for p in islice(problems, 4000)]
    boxed = [(p, re.search(r"\\boxed\{(\d+)\}$", s)) for p, s in solutions]
    no_box = sum(match is None for _, match in boxed) / 4000
    guesses = sum(s.startswith("\\boxed") for _, s in solutions) / 4000
    right = sum(match is not None and int(match[1]) == p.answer for p, match in boxed) / 4000
    assert 0.02 < no_box < 0.06
    assert 0.22 < guesses < 0.28
    assert 0.4 < right < 0.8
    spoken = [word for _, s in solutions for word in FILLERS if word in s]
    assert set(spoken) == set(FILLERS)


def test_a_cancelled_wrong_step_leaves_a_right_answer():
    rng, found = Random(0), False
    for problem in islice(training_problems(2), 20000):
        solution = sloppy_solution(problem, rng, 0.8)
        if not solution.endswith(f"\\boxed{{{problem.answer}}}") or "*" not in problem.question:
            continue
        steps = re.findall(r"(\d)([-+*])(\d)=(\d)(?=[;.])", solution)
        wrong = [s for s in steps if evaluate(f"chain:{s[0]}{s[1]}{s[2]}?") != int(s[3])]
        if problem.question.startswith("chain") and wrong:
            found = True
            break
    assert found


def test_the_vocabulary_is_small_and_without_doubles():
    assert len(VOCABULARY) == len(set(VOCABULARY)) < 64
