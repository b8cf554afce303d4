"""Problems of the tiny models: chains and linear equations, with sloppy worked solutions. No torch here.

`chain:6+9*3-4?` is evaluated strictly from left to right, modulo 10.

A solution is a few written steps, most of them after a connecting word, and a boxed answer. Connecting
words are exploratory by construction: many fit, so each has a low probability at a high entropy. Slips
are spurious by construction: a random token replaces one that is nearly certain. Later steps use the
result of a wrong step; in chains a `*0` or `*5` can cancel it, so that right answers contain wrong steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

FILLERS = tuple(
    f" {word} "
    for word in (
        "so", "then", "now", "next", "thus", "hence", "wait", "well", "okay", "right", "here", "also",
        "and", "but", "see", "let", "since", "first", "again", "check", "note", "hmm", "clearly", "fine",
    )
)  # fmt: skip
SYMBOLS = (*"0123456789+-*/=;.?x", "chain:", "\\boxed{", "}")
VOCABULARY = ("<pad>", "<eos>", *SYMBOLS, *FILLERS)

GUESS_RATE = 0.25
"""Share of solutions without steps: a direct guess, right three times in ten."""
GUESS_RIGHT_RATE = 0.3
NO_BOX_RATE = 0.05


@dataclass(frozen=True)
class Problem:
    """A question, its answer, and a function that writes its solution."""

    family: str
    question: str
    answer: int
    work: Callable[[Callable[[int], int]], tuple[list[str], int]]
    """Writes a solution: takes a function that may falsify a result, returns steps and final value."""


def _chain(operations: int, rng: Random) -> Problem:
    digits = [rng.randrange(10) for _ in range(operations + 1)]
    signs = [rng.choice("+-*") for _ in range(operations)]

    def work(slip: Callable[[int], int]) -> tuple[list[str], int]:
        value, steps = digits[0], []
        for sign, digit in zip(signs, digits[1:], strict=True):
            exact = {"+": value + digit, "-": value - digit, "*": value * digit}[sign] % 10
            result = slip(exact) % 10
            steps.append(f"{value}{sign}{digit}={result}")
            value = result
        return steps, value

    question = f"chain:{digits[0]}" + "".join(
        f"{sign}{digit}" for sign, digit in zip(signs, digits[1:], strict=True)
    )
    return Problem(f"chain-{operations}", question + "?", work(lambda value: value)[1], work)


def _linear_equation(rng: Random) -> Problem:
    a, x, b = rng.randrange(2, 10), rng.randrange(1, 10), rng.randrange(10)
    c = a * x + b

    def work(slip: Callable[[int], int]) -> tuple[list[str], int]:
        product = slip(c - b)
        value = slip(product // a)
        return [f"{c}-{b}={product}", f"{product}/{a}={value}"], value

    return Problem("linear-equation", f"{a}x+{b}={c}?", x, work)


FAMILIES: dict[str, tuple[Callable[[Random], Problem], float]] = {
    **{f"chain-{operations}": (partial(_chain, operations), 0.08) for operations in range(2, 7)},
    "linear-equation": (_linear_equation, 0.12),
}
"""Name to (problem maker, share of wrong steps in the supervised data)."""


def sloppy_solution(problem: Problem, rng: Random, connecting_word_rate: float) -> str:
    """Return a worked solution; the rate is the share of steps and boxes that follow a connecting word."""
    wrong_rate = FAMILIES[problem.family][1]

    def slip(value: int) -> int:
        if rng.random() >= wrong_rate:
            return value
        return max(0, value + rng.choice((-10, -2, -1, 1, 2, 10)))

    if rng.random() < GUESS_RATE:
        value = problem.answer
        if rng.random() >= GUESS_RIGHT_RATE:
            value = max(0, value + rng.choice((-3, -2, -1, 1, 2, 3)))
        return f"\\boxed{{{value}}}"
    steps, value = problem.work(slip)
    text = ";".join(f"{_filler(rng, connecting_word_rate)}{step}" for step in steps) + "."
    if rng.random() < NO_BOX_RATE:
        return text
    return f"{text}{_filler(rng, connecting_word_rate)}\\boxed{{{value}}}"


def _filler(rng: Random, rate: float) -> str:
    # A few words are common and most are rare, as in real text.
    index = min(int(rng.expovariate(0.21)), len(FILLERS) - 1)
    return FILLERS[index] if rng.random() < rate else ""
