"""Generated problems, divided into training and benchmarks, and the tiny worlds, with written solutions.

No torch here.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from stapo.suite.models import arithmetic, marked, word_problems
from stapo.suite.models.arithmetic import Problem
from stapo.suite.models.word_problems import WordProblem

HELD_OUT_SHARE = 5
"""One problem in this many belongs to the benchmarks, the others to training. A hash of the question
decides, so that the two sets are disjoint for every seed."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What a base model and its training prompts are made of."""

    families: tuple[str, ...]
    """Of the problems."""
    vocabulary: tuple[str, ...] = arithmetic.VOCABULARY
    context: int = 96
    """Largest number of tokens of a question and its response."""
    write: Callable[[Any, Random, float], str] = arithmetic.sloppy_solution
    """From a problem, a source of chance and the rate of connecting words to the text of a solution."""
    marks: Callable[[Sequence[str], Sequence[str]], list[str]] | None = None
    """From the tokens of a question and a response to the marks of those of the response."""


AnyProblem = Problem | marked.Chain | WordProblem
FAMILIES: dict[str, Callable[[Random], AnyProblem]] = {
    **{name: make for name, (make, _) in arithmetic.FAMILIES.items()},
    **{f"marked-{number}": partial(marked.chain, number) for number in (8, 12)},
    "words": partial(word_problems.mixed, word_problems.KINDS),
    "words-new-kinds": partial(word_problems.mixed, word_problems.NEW_KINDS),
}
"""Name -> maker of a problem."""
WORLDS = {
    "tiny-arithmetic": World(families=(*(f"chain-{n}" for n in range(2, 7)), "linear-equation")),
    "marked-chains": World(
        families=("marked-8", "marked-12"),
        vocabulary=marked.VOCABULARY,
        context=160,
        write=marked.written,
        marks=marked.marks,
    ),
}
"""Builder of a model and its training prompts -> the world of both."""
TRAINED = {**{name: world.families for name, world in WORLDS.items()}, "word-problems": ("words",)}
"""Builder of training prompts -> the families of its problems."""


Marks = Callable[[Sequence[int], Sequence[int]], list[str]]
"""From the ids of a question and a response to the marks of the response's tokens."""


def marks_of(tokenizer: Any) -> Marks | None:
    """Return the marks of the world that a tokenizer belongs to, None if it has none."""
    for world in WORLDS.values():
        words, marks = world.vocabulary, world.marks
        ids = {token: number for number, token in enumerate(words)}
        if marks is not None and tokenizer.get_vocab() == ids:
            return lambda *both: marks(*([words[index] for index in each] for each in both))
    return None


def is_held_out(question: str) -> bool:
    """Return whether a question belongs to the benchmarks; the others are for training."""
    return hashlib.sha256(question.encode()).digest()[0] % HELD_OUT_SHARE == 0


def benchmark_problems(family: str, rows: int, seed: int = 0) -> list[AnyProblem]:
    """Return distinct held-out problems of one family; the same arguments give the same problems."""
    rng = Random(f"benchmark {family} {seed}")
    problems: dict[str, AnyProblem] = {}
    while len(problems) < rows:
        problem = FAMILIES[family](rng)
        if is_held_out(problem.question):
            problems[problem.question] = problem
    return list(problems.values())


def training_problems(seed: int, builder: str = "tiny-arithmetic") -> Iterator[Any]:
    """Yield training problems of a builder without end, family by family, never a held-out problem."""
    rng, makers = Random(f"training {seed}"), [FAMILIES[name] for name in TRAINED[builder]]
    while True:
        for make in makers:
            problem = make(rng)
            while is_held_out(problem.question):
                problem = make(rng)
            yield problem
