r"""Problems whose every token is known to be right, harmless or wrong: long chains with marked solutions.

`chain:6a+9b*3c-4?` is evaluated strictly from left to right, modulo 10; the letters number the operations.
A solution repeats letter, sign and digit of every operation, and states its result:
`a+9=5;b*3=5;c-4=1.\boxed{1}`. Three kinds of slips are put into the solutions of the supervised data, each
drawn from a Zipf distribution, so that some are rare:

- words that say nothing, at any place: 472 of them, besides the common connecting words;
- detours: a wrong result, the word " no " and the operation again;
- wrong results and letters, digits or signs that stay, and that often break the answer. A `*0` or `*5` can
  cancel one, so that right answers contain wrong tokens.

`marks` says of every token of any response, also one that a model wrote, which of these it is. So the tokens
that the paper calls spurious, wrong ones in right answers, are known here.

No torch here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from random import Random

LABELS = tuple("abcdefghijkl")
SIGNS = ("+", "-", "*")
DIGITS = tuple("0123456789")
NO = " no "
END = "<eos>"
COMMON = (" so ", " then ", " now ", " next ", " thus ", " hence ", " well ", " okay ")
RARE = tuple(
    f" {first}{other} "
    for first, other in product(
        (c + v for c in "bdfgklmnprstvz" for v in "aiu"), (c + v for c in "kmrsl" for v in "eoy")
    )
)[:472]  # fmt: skip
WORDS = frozenset((*COMMON, *RARE))
VOCABULARY = (
    "<pad>", END, *DIGITS, *SIGNS, "=", ";", ".", "?", "chain:", "\\boxed{", "}", *LABELS, NO, *COMMON, *RARE,
)  # fmt: skip

SOUND, WORD, DETOUR, SLIP, UNREAD = "sound", "word", "detour", "slip", "unread"
MARKS = (SOUND, WORD, DETOUR, SLIP, UNREAD)
"""What a token of a response is.

- sound: what the question and the tokens before it ask for;
- word: says nothing and changes nothing;
- detour: wrong, but repeated after " no ", or a repetition of what was right;
- slip: wrong, and not repeated; whether the answer is wrong too, its grade says;
- unread: where the response has left its form, until the next operation.
"""

WORD_RATE = 0.0003
"""Rare words before any token; 472 of them, so that most have a probability below 1e-4."""
WRONG_RATE = 0.05
"""Wrong results of operations that stay."""
DETOUR_RATE = 0.015
"""Wrong results of operations that are repeated at once."""
COPY_RATE = 0.003
"""Wrong letters, signs and digits, for each token that repeats the question."""


@dataclass(frozen=True)
class Chain:
    """A chain of operations, from left to right modulo 10."""

    family: str
    first: int
    operations: tuple[tuple[str, int], ...]
    """Sign and digit."""

    @property
    def question(self) -> str:
        """The question."""
        labelled = zip(LABELS, self.operations, strict=False)
        return f"chain:{self.first}" + "".join(f"{at}{s}{d}" for at, (s, d) in labelled) + "?"

    @property
    def answer(self) -> int:
        """The result."""
        value = self.first
        for sign, digit in self.operations:
            value = computed(value, sign, digit)
        return value


def computed(value: int, sign: str, digit: int) -> int:
    """Return the result of one operation, modulo 10."""
    return {"+": value + digit, "-": value - digit, "*": value * digit}[sign] % 10


def chain(operations: int, rng: Random) -> Chain:
    """Return a random problem."""
    drawn = tuple((rng.choice(SIGNS), rng.randrange(10)) for _ in range(operations))
    return Chain(f"marked-{operations}", rng.randrange(10), drawn)


def _zipf(among: Sequence[str], rng: Random) -> str:
    """Return one of some tokens, the first twice as often as the second and so on."""
    weights = [*accumulate(1 / rank for rank in range(1, len(among) + 1))]
    return rng.choices(among, cum_weights=weights)[0]


def _others(among: Sequence[str], right: str) -> list[str]:
    """Return the tokens of a kind except the right one, those after it first."""
    at = among.index(right)
    return [*among[at + 1 :], *among[:at]]


def solution(problem: Chain, rng: Random, connecting_word_rate: float) -> list[tuple[str, str]]:
    """Return the tokens of a solution with marks; the rate is the share of operations after a common word."""
    tokens: list[tuple[str, str]] = []

    def write(token: str, mark: str = SOUND) -> None:
        if rng.random() < WORD_RATE:
            tokens.append((_zipf(RARE, rng), WORD))
        tokens.append((token, mark))

    def copied(token: str, among: Sequence[str]) -> str:
        """Write a token of the question, or a wrong one; return it."""
        if rng.random() < COPY_RATE:
            wrong = _zipf(_others(among, token), rng)
            write(wrong, SLIP)
            return wrong
        write(token)
        return token

    value, last = problem.first, len(problem.operations) - 1
    for number, (sign, digit) in enumerate(problem.operations):
        if rng.random() < connecting_word_rate:
            write(_zipf(COMMON, rng), WORD)
        start = len(tokens)
        write(LABELS[number])
        while True:
            right = computed(value, copied(sign, SIGNS), int(copied(str(digit), DIGITS)))
            write("=")
            chance = rng.random()
            wrong = _zipf(_others(DIGITS, str(right)), rng)
            if chance < DETOUR_RATE:
                write(wrong, DETOUR)
                write(";", DETOUR if number == last else SOUND)
                tokens[start:] = [(text, DETOUR if m == SLIP else m) for text, m in tokens[start:]]
                start = len(tokens)
                write(NO)
                write(LABELS[number])
                continue
            result = wrong if chance < DETOUR_RATE + WRONG_RATE else str(right)
            write(result, SOUND if result == str(right) else SLIP)
            value = int(result)
            break
        write("." if number == last else ";")
    for token in ("\\boxed{", str(value), "}"):
        write(token)
    return tokens


def written(problem: Chain, rng: Random, connecting_word_rate: float) -> str:
    """Return the text of such a solution."""
    return "".join(token for token, _ in solution(problem, rng, connecting_word_rate))


def parsed(question: Sequence[str]) -> Chain:
    """Return the problem of a question's tokens."""
    first, *rest = (token for token in question if token not in ("chain:", "?"))
    pairs = zip(rest[1::3], map(int, rest[2::3]), strict=True)
    return Chain("", int(first), tuple(pairs))


def marks(question: Sequence[str], response: Sequence[str]) -> list[str]:
    """Return the mark of every token of a response, one of `MARKS`; a response may be anything."""
    reader = _Reader(parsed(question))
    for token in response:
        reader.read(token)
    return reader.marks


class _Reader:
    """Follows a response token by token."""

    def __init__(self, problem: Chain) -> None:
        self.problem = problem
        self.marks: list[str] = []
        self.read_next: Callable[[str], str] = self.label
        self.number = 0  # Of the operation in progress.
        self.value = self.before = problem.first  # After the last operation, and before it.
        self.start = 0  # Index of the first mark of the operation in progress.
        self.again = False  # Whether a right operation is repeated.
        self.sign, self.digit = "+", 0

    def read(self, token: str) -> None:
        """Mark a token."""
        mark = WORD if token in WORDS else self.read_next(token)
        self.marks.append(DETOUR if self.again and mark == SOUND else mark)

    def expect(
        self, token: str, among: Sequence[str], right: str, then: Callable[[str], str]
    ) -> str:
        """Return the mark of a token that is one of some, and what is read next."""
        self.read_next = then if token in among else self.lost
        return SOUND if token == right else SLIP

    def label(self, token: str) -> str:
        operations = self.problem.operations
        if token == NO and self.number > 0:
            return self.repeated()
        if token in LABELS[: len(operations)]:
            expected, self.number = self.number, LABELS.index(token)
            self.start, self.read_next = len(self.marks), self.read_sign
            return SOUND if self.number == expected else SLIP
        self.read_next = self.answer if token == "\\boxed{" else self.lost
        return SLIP

    def repeated(self) -> str:
        """Go back by one operation; what was wrong in it is a detour, otherwise its repetition is one."""
        wrong = [at for at in range(self.start, len(self.marks)) if self.marks[at] == SLIP]
        for at in wrong:
            self.marks[at] = DETOUR
        self.again = not wrong
        self.number, self.value = self.number - 1, self.before
        return SOUND

    def read_sign(self, token: str) -> str:
        self.sign = token
        return self.expect(token, SIGNS, self.problem.operations[self.number][0], self.read_digit)

    def read_digit(self, token: str) -> str:
        right = self.problem.operations[self.number][1]
        self.digit = int(token) if token in DIGITS else 0
        return self.expect(token, DIGITS, str(right), self.equals)

    def equals(self, token: str) -> str:
        return self.expect(token, "=", "=", self.result)

    def result(self, token: str) -> str:
        right = computed(self.value, self.sign, self.digit)
        self.before, self.value = self.value, int(token) if token in DIGITS else right
        return self.expect(token, DIGITS, str(right), self.end)

    def end(self, token: str) -> str:
        self.again = False
        self.number += 1
        last = self.number == len(self.problem.operations)
        if token == ".":
            self.read_next = self.box
        else:
            self.read_next = self.label if token == ";" else self.lost
        return SOUND if token == (".;"[not last]) else SLIP

    def box(self, token: str) -> str:
        return self.expect(token, ("\\boxed{",), "\\boxed{", self.answer)

    def answer(self, token: str) -> str:
        return self.expect(token, DIGITS, str(self.value), self.close)

    def close(self, token: str) -> str:
        return self.expect(token, "}", "}", self.finish)

    def finish(self, token: str) -> str:
        return self.expect(token, (), END, self.lost)

    def lost(self, token: str) -> str:
        self.again = False
        if token == ";":
            self.number += 1
            self.read_next = self.label
        return UNREAD
