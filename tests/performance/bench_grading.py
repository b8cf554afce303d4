"""Our grading beside a plain loop over math-verify on the same 20,000 responses: `make bench`.

As many responses per problem as the paper samples. How often answers repeat is our assumption: the right one
in most samples (60 % over all problems), one time in eight in another notation, else one of four wrong ones.
"""

import argparse
import os
import random
from time import perf_counter

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from rich.console import Console

from stapo.evaluation.grading import grade_all, last_boxed

SAMPLES = (*[32] * 220, *[4] * 3240)
"""20,000 responses in the paper's proportion: a third at N=32, the rest at N=4."""

OTHER_NOTATION = 1 / 8


def gold_answer(draw: random.Random) -> tuple[str, list[str]]:
    """Return a gold answer and other notations of it."""
    kind, a, b = draw.choice("iiifers"), draw.randint(2, 97), draw.randint(2, 97)
    if kind == "i":
        return str(a * b), [f"{a * b}.0", rf"\text{{{a * b}}}"]
    if kind == "f":
        return rf"\frac{{{a}}}{{{97}}}", [rf"\dfrac{{{a}}}{{{97}}}", rf"{a}/97"]
    if kind == "e":
        return rf"{a}x^2+{b}x", [rf"{b}x+{a}x^2", rf"x({a}x+{b})"]
    if kind == "r":
        return rf"{a}\sqrt{{{b}}}", [rf"\sqrt{{{b}}}\cdot {a}"]
    return rf"({a},{b})", [rf"\left({a}, {b}\right)"]


def responses(seed: int) -> list[tuple[str, str]]:
    """Return 20,000 pairs of gold answer and response."""
    draw, pairs = random.Random(seed), []
    for samples in SAMPLES:
        gold, forms = gold_answer(draw)
        wrong = [gold_answer(draw)[0] for _ in range(4)]
        skill = draw.random() ** 0.6
        for _ in range(samples):
            right = draw.random() < skill
            form = draw.choice(forms) if draw.random() < OTHER_NOTATION else gold
            answer = form if right else draw.choices(wrong, weights=(6, 3, 2, 1))[0]
            pairs.append((gold, rf"Some reasoning. So the answer is \boxed{{{answer}}}."))
    return pairs


def plain_loop(pairs: list[tuple[str, str]]) -> list[bool]:
    """Return math-verify's verdicts, one response after another; a box around both sides."""
    extraction = [LatexExtractionConfig(), ExprExtractionConfig()]
    return [
        verify(parse(rf"\boxed{{{gold}}}", extraction), parse(response, extraction))
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
