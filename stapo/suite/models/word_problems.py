"""Word problems in plain English for small language models, from templates. No torch here.

A problem has one to three facts about who has how many of what, and asks for a number that needs no step
(one of the facts, beside others), one step or two. Some kinds are never trained on: how a model answers them
shows whether it learned more than the templates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jack", "Kate", "Leo",
    "Maria", "Noah", "Olivia", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Yusuf", "Aisha", "Chen",
    "Diego", "Ingrid", "Kofi", "Lena", "Mateo", "Priya",
)  # fmt: skip
THINGS = (
    "apples", "balls", "beads", "books", "buttons", "cards", "coins", "cookies", "crayons", "eggs",
    "flowers", "grapes", "keys", "lemons", "marbles", "muffins", "nuts", "oranges", "pencils", "plums",
    "postcards", "ribbons", "rocks", "shells", "socks", "spoons", "stamps", "stickers", "tickets", "toys",
)  # fmt: skip
HOLDERS = ("bags", "baskets", "boxes", "drawers", "jars", "trays")
GETS = ("buys", "finds", "gets", "wins")
LOSES = ("gives away", "loses", "sells", "uses")


@dataclass(frozen=True)
class WordProblem:
    """A question and its answer."""

    question: str
    answer: int


def _people(rng: Random, count: int) -> list[str]:
    return rng.sample(NAMES, count)


def _facts(count: int, rng: Random) -> WordProblem:
    """Several facts, of which the question asks for one."""
    people, things = _people(rng, count), rng.sample(THINGS, count)
    numbers = [rng.randint(2, 30) for _ in people]
    facts = [f"{who} has {n} {what}" for who, n, what in zip(people, numbers, things, strict=True)]
    asked = rng.randrange(count)
    text = f"{', '.join(facts[:-1])} and {facts[-1]}."
    return WordProblem(
        f"{text} How many {things[asked]} does {people[asked]} have?", numbers[asked]
    )


def _other_changes(rng: Random) -> WordProblem:
    """Two facts and a change of the one that the question does not ask for."""
    (first, second), (mine, yours) = _people(rng, 2), rng.sample(THINGS, 2)
    a, b, c = rng.randint(2, 30), rng.randint(12, 30), rng.randint(2, 10)
    text = f"{first} has {a} {mine} and {second} has {b} {yours}. {second} {rng.choice(LOSES)} {c}."
    return WordProblem(f"{text} How many {mine} does {first} have?", a)


def _together(rng: Random) -> WordProblem:
    (first, second), thing = _people(rng, 2), rng.choice(THINGS)
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    text = f"{first} has {a} {thing}. {second} has {b} {thing}."
    return WordProblem(f"{text} How many {thing} do they have together?", a + b)


def _more(rng: Random) -> WordProblem:
    (who,), thing = _people(rng, 1), rng.choice(THINGS)
    a, b = rng.randint(2, 20), rng.randint(2, 12)
    text = f"{who} has {a} {thing} and {rng.choice(GETS)} {b} more."
    return WordProblem(f"{text} How many {thing} does {who} have now?", a + b)


def _fewer(rng: Random) -> WordProblem:
    (who,), thing = _people(rng, 1), rng.choice(THINGS)
    b = rng.randint(2, 10)
    a = b + rng.randint(2, 20)
    text = f"{who} has {a} {thing} and {rng.choice(LOSES)} {b}."
    return WordProblem(f"{text} How many {thing} does {who} have left?", a - b)


def _groups(rng: Random) -> WordProblem:
    (who,), thing, holder = _people(rng, 1), rng.choice(THINGS), rng.choice(HOLDERS)
    a, b = rng.randint(2, 6), rng.randint(2, 10)
    text = f"{who} has {a} {holder} with {b} {thing} in each."
    return WordProblem(f"{text} How many {thing} does {who} have?", a * b)


def _more_then_fewer(rng: Random) -> WordProblem:
    (who,), thing = _people(rng, 1), rng.choice(THINGS)
    a, b = rng.randint(2, 20), rng.randint(2, 10)
    c = rng.randint(2, a)
    text = f"{who} has {a} {thing}, {rng.choice(GETS)} {b} more and {rng.choice(LOSES)} {c}."
    return WordProblem(f"{text} How many {thing} does {who} have now?", a + b - c)


def _difference(rng: Random) -> WordProblem:
    (first, second), thing = _people(rng, 2), rng.choice(THINGS)
    b = rng.randint(2, 15)
    a = b + rng.randint(2, 15)
    text = f"{first} has {a} {thing} and {second} has {b} {thing}."
    return WordProblem(f"{text} How many more {thing} does {first} have than {second}?", a - b)


def _given(rng: Random) -> WordProblem:
    (first, second), thing = _people(rng, 2), rng.choice(THINGS)
    b, c = rng.randint(2, 20), rng.randint(2, 8)
    a = c + rng.randint(2, 15)
    text = f"{first} has {a} {thing} and {second} has {b} {thing}. {first} gives {c} to {second}."
    return WordProblem(f"{text} How many {thing} does {second} have now?", b + c)


KINDS: dict[str, Callable[[Random], WordProblem]] = {
    "two-facts": partial(_facts, 2),
    "three-facts": partial(_facts, 3),
    "other-changes": _other_changes,
    "together": _together,
    "more": _more,
    "fewer": _fewer,
    "more-then-fewer": _more_then_fewer,
}
"""Kinds of the training prompts; held-out problems of the same kinds are the benchmark `words`."""
NEW_KINDS: dict[str, Callable[[Random], WordProblem]] = {
    "groups": _groups,
    "difference": _difference,
    "given": _given,
}
"""Kinds that are never trained on: the benchmark `words-new-kinds`."""


def mixed(kinds: dict[str, Callable[[Random], WordProblem]], rng: Random) -> WordProblem:
    """Return a problem of a random kind."""
    return kinds[rng.choice([*kinds])](rng)
