"""Our grading beside a plain loop over math-verify on the same 20,000 responses: `make bench`.

As many responses per problem as the paper samples, and kinds of gold answers as often as in the six
benchmarks (counted; those of AIME and AMC are whole). How often answers repeat is our assumption: the right
one in most samples (60 % over all problems), one time in eight in another notation, else one of four wrong
ones, three of four of them of the gold answer's kind.
"""

import argparse
import itertools
import os
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.evaluation.grading import grade_all, last_boxed, normalise

sys.path.insert(0, str(Path(__file__).parents[1]))
import grading_fuzz as fuzz

SAMPLES = (*[32] * 222, *[4] * 3224)
"""20,000 responses in the paper's proportion: 36 % at N=32, the rest at N=4."""

KINDS = {
    "integer": 55, "decimal": 10, "fraction": 6, "root": 8, "tuple": 7, "polynomial": 4, "linear": 10
}  # fmt: skip
"""Per cent of the gold answers at N=4, where 1,446 were counted; `linear` stands for all others."""

OTHER_NOTATION = 1 / 8

ROUNDS = 5


def gold_answer(draw: random.Random, kind: str) -> tuple[str, list[str]]:
    """Return a gold answer and other notations of it."""
    a, b = draw.randint(2, 97), draw.randint(2, 97)
    if kind == "integer":
        return str(a * b), [f"{a * b}.0", rf"\text{{{a * b}}}"]
    if kind == "decimal":
        return f"{a / 10}e{b}", [rf"{a / 10}\times 10^{{{b}}}", rf"{a / 10} \cdot 10^{{{b}}}"]
    if kind == "fraction":
        return rf"\frac{{{a}}}{{{97}}}", [rf"\dfrac{{{a}}}{{{97}}}", rf"{a}/97"]
    if kind == "linear":
        return rf"{a}n+{b}k", [rf"{b}k+{a}n", rf"{a} n + {b} k"]
    if kind == "polynomial":
        return rf"{a}x^2+{b}x", [rf"{b}x+{a}x^2", rf"x({a}x+{b})"]
    if kind == "root":
        return rf"{a}\sqrt{{{b}}}", [rf"\sqrt{{{b}}}\cdot {a}"]
    return rf"({a},{b})", [rf"\left({a}, {b}\right)"]


def draw_kind(draw: random.Random) -> str:
    """Return the kind of an answer at N=4."""
    return draw.choices(list(KINDS), weights=list(KINDS.values()))[0]


def responses(seed: int) -> list[tuple[str, str]]:
    """Return 20,000 pairs of gold answer and response."""
    draw, pairs = random.Random(seed), []
    for samples in SAMPLES:
        kind = "integer" if samples == 32 else draw_kind(draw)
        gold, forms = gold_answer(draw, kind)
        others = [kind if draw.random() < 0.75 else draw_kind(draw) for _ in range(4)]
        wrong = [gold_answer(draw, other)[0] for other in others]
        skill = draw.random() ** 0.6
        for _ in range(samples):
            right = draw.random() < skill
            form = draw.choice(forms) if draw.random() < OTHER_NOTATION else gold
            answer = form if right else draw.choices(wrong, weights=(6, 3, 2, 1))[0]
            pairs.append((gold, rf"Some reasoning. So the answer is \boxed{{{answer}}}."))
    return pairs


def plain_loop(pairs: list[tuple[str, str]]) -> list[bool]:
    """Return math-verify's verdicts, one response after another; a box around both sides.

    4.5e33 is rewritten for it as for us: otherwise it reads 4.5 times e times 33.
    """
    extraction = [LatexExtractionConfig(), ExprExtractionConfig()]
    return [
        verify(
            parse(rf"\boxed{{{normalise(gold)}}}", extraction),
            parse(normalise(response), extraction),
        )
        for gold, response in pairs
    ]


def slices(pairs: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Return the responses in ROUNDS parts of whole problems, each with every kind of benchmark."""
    by_problem = [list(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair[0])]
    return [list(itertools.chain(*by_problem[i::ROUNDS])) for i in range(ROUNDS)]


def compare_speed(console: Console) -> None:
    """Print the median ratio to the plain loop, and whether a verdict on usual answers differs."""
    pairs = responses(0)
    grade_all(pairs[:40], workers=2)  # Workers start once; their imports are not grading.
    ratios, correct, differing = [], 0, set()
    for part in slices(pairs):
        start = perf_counter()
        ours = [grade.correct for grade in grade_all(part, workers=2)]
        middle = perf_counter()
        theirs = plain_loop(part)
        ratios.append((perf_counter() - middle) / (middle - start))
        correct += sum(ours)
        differing |= {p for p, a, b in zip(part, ours, theirs, strict=True) if a != b}
    console.print(
        f"{len(pairs)} responses, {len({(g, last_boxed(r)) for g, r in pairs})} distinct pairs, "
        f"{correct / len(pairs):.0%} correct, 2 workers on {os.cpu_count()} cores\n"
        f"  {median(ratios):.1f} times faster than a plain loop over math-verify, "
        f"median of {ROUNDS} ({min(ratios):.1f} to {max(ratios):.1f})\n"
        f"  verdicts that differ: {len(differing)} {sorted(differing)[:3]}",
        markup=False,
    )


def compare_verdicts(console: Console, count: int) -> None:
    """Print where our verdict is not math-verify's on hedged, marked and unfinished answers, by reason."""
    found = list(fuzz.pairs(0, count))
    asked = [(pair.gold, rf"\boxed{{{pair.answer}}}") for pair in found]
    ours = [grade.correct for grade in grade_all(asked, workers=2)]
    theirs = plain_loop(asked)
    table = Table(box=None, title=f"{count} answers in unusual notations: verdicts that differ")
    for column in ("reason", "only math-verify accepts", "only we accept"):
        table.add_column(column, justify="left" if column == "reason" else "right")
    reasons: dict[str, Counter[bool]] = defaultdict(Counter)
    for pair, a, b in zip(found, ours, theirs, strict=True):
        if a != b:
            reasons[f"{pair.kind}: {pair.way}" if pair.kind not in fuzz.NUMBERS else pair.way][
                a
            ] += 1
    for reason, counts in sorted(reasons.items(), key=lambda item: -item[1].total()):
        table.add_row(Text(reason), str(counts[False]), str(counts[True]))
    console.print(table)
    for name, verdicts in (("math-verify", theirs), ("ours", ours)):
        wrong = [p.equal for p, verdict in zip(found, verdicts, strict=True) if p.equal != verdict]
        console.print(
            f"  {name}: {wrong.count(False)} wrong accepts, {wrong.count(True)} wrong rejects"
        )


def main() -> None:
    """Print the ratio and the verdicts that differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2000, help="answers in unusual notations")
    count, console = parser.parse_args().pairs, Console(width=110)
    compare_speed(console)
    compare_verdicts(console, count)


if __name__ == "__main__":
    main()
