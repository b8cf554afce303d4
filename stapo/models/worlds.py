"""The tiny worlds: their problems, divided into training and benchmarks, and how solutions are written.

No torch here.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from stapo.models import arithmetic, marked
from stapo.models.arithmetic import Problem

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


FAMILIES: dict[str, Callable[[Random], Problem | marked.Chain]] = {
    **{name: make for name, (make, _) in arithmetic.FAMILIES.items()},
    **{f"marked-{number}": partial(marked.chain, number) for number in (8, 12)},
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


Marks = Callable[[Sequence[int], Sequence[int]], list[str]]
"""From the ids of a question and a response to the marks of the response's tokens."""


def marks_of(tokenizer: Any) -> Marks | None:
    """Return the marks of the world that a tokenizer belongs to, None if it has none."""
    for world in WORLDS.values():
        words, marks = world.vocabulary, world.marks
        ids = {token: number for number, token in enumerate(words)}
        if marks is not None and tokenizer.get_vocab() == ids:
            return lambda *both: marks(*([words[one] for one in each] for each in both))
    return None


def is_held_out(question: str) -> bool:
    """Return whether a question belongs to the benchmarks; the others are for training."""
    return hashlib.sha256(question.encode()).digest()[0] % HELD_OUT_SHARE == 0


def benchmark_problems(family: str, rows: int, seed: int = 0) -> list[Problem | marked.Chain]:
    """Return distinct held-out problems of one family; the same arguments give the same problems."""
    rng = Random(f"benchmark {family} {seed}")
    found: dict[str, Problem | marked.Chain] = {}
    while len(found) < rows:
        problem = FAMILIES[family](rng)
        if is_held_out(problem.question):
            found[problem.question] = problem
    return list(found.values())


def training_problems(
    seed: int, world: str = "tiny-arithmetic"
) -> Iterator[Problem | marked.Chain]:
    """Yield training problems of a world without end, family by family, never a held-out problem."""
    rng, makers = Random(f"training {seed}"), [FAMILIES[name] for name in WORLDS[world].families]
    while True:
        for make in makers:
            problem = make(rng)
            while is_held_out(problem.question):
                problem = make(rng)
            yield problem
