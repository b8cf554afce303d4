"""Our grading beside a plain loop over math-verify on the same 20,000 responses: `make bench`.

As many responses per problem as the paper samples, and kinds of gold answers as often as in the six
benchmarks (counted; those of AIME and AMC are whole). How often answers repeat is our assumption: the right
one in most samples (60 % over all problems), one time in eight in another notation, else one of four wrong
ones, three of four of them of the gold answer's kind.
"""

import argparse
import os
import random
from time import perf_counter

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from rich.console import Console

from stapo.evaluation.grading import grade_all, last_boxed, normalise

SAMPLES = (*[32] * 222, *[4] * 3224)
"""20,000 responses in the paper's proportion: 36 % at N=32, the rest at N=4."""

KINDS = {
    "integer": 55, "decimal": 10, "fraction": 6, "root": 8, "tuple": 7, "polynomial": 4, "linear": 10
}  # fmt: skip
"""Per cent of the gold answers at N=4, where 1,446 were counted; `linear` stands for all others."""

OTHER_NOTATION = 1 / 8


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


def main() -> None:
    """Print the ratio and the verdicts that differ."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    pairs, console = responses(0), Console(width=110)
    grade_all(pairs[:40], workers=2)  # Workers start once; their imports are not grading.
    start = perf_counter()
    ours = [grade.correct for grade in grade_all(pairs, workers=2)]
    seconds = perf_counter() - start
    start = perf_counter()
    theirs = plain_loop(pairs)
    plain = perf_counter() - start
    differing = sorted(
        {
            (g, str(last_boxed(r)))
            for (g, r), a, b in zip(pairs, ours, theirs, strict=True)
            if a != b
        }
    )
    console.print(
        f"{len(pairs)} responses, {len({(g, last_boxed(r)) for g, r in pairs})} distinct pairs, "
        f"{sum(ours) / len(ours):.0%} correct, 2 workers on {os.cpu_count()} cores\n"
        f"  plain loop over math-verify {plain:.1f} s, ours {seconds:.1f} s: "
        f"{plain / seconds:.1f} times faster\n"
        f"  verdicts that differ: {len(differing)} pairs {differing[:5]}",
        markup=False,
    )


if __name__ == "__main__":
    main()
