"""Our verdicts beside math-verify's on the gold answers of the six benchmarks: `make bench`.

The rows are read from `STAPO_BENCHMARK_ROWS`, a directory of parquet files. Each gold is graded in its own
notation and in others, and against golds of other problems. Prints where the two verdicts differ.
"""

import itertools
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.evaluation.grading import grade_all, last_boxed

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
SCIENTIFIC = r"(-?[0-9.]+)e(-?[0-9]+)"
NOTATIONS: dict[str, Callable[[str], str | None]] = {
    "as given": lambda gold: gold,
    "in a box": lambda gold: rf"\boxed{{{gold}}}",
    "in dollars": lambda gold: f"${gold}$" if "$" not in gold else None,
    "without dollars": lambda gold: re.sub(r"(?<!\\)\$", "", gold) if "$" in gold else None,
    "display style": lambda gold: rf"\displaystyle {gold}",
    "full stop": lambda gold: f"{gold}.",
    "as x = ...": lambda gold: f"x = {gold}" if not re.search("[=,<>]|text", gold) else None,
    "number in \\text": lambda gold: rf"\text{{{gold}}}" if re.fullmatch(NUMBER, gold) else None,
    "number in \\mathbf": lambda gold: (
        rf"\mathbf{{{gold}}}" if re.fullmatch(NUMBER, gold) else None
    ),
    "with a unit": lambda gold: rf"{gold}\text{{ cm}}" if re.fullmatch(NUMBER, gold) else None,
    "thousands comma": lambda gold: f"{int(gold):,}" if re.fullmatch("[0-9]{4,}", gold) else None,
    "thin space": lambda gold: (
        f"{int(gold):,}".replace(",", r"\,") if re.fullmatch("[0-9]{4,}", gold) else None
    ),
    "with .0": lambda gold: f"{gold}.0" if re.fullmatch("-?[0-9]+", gold) else None,
    "\\dfrac": lambda gold: gold.replace(r"\frac", r"\dfrac") if r"\frac" in gold else None,
    "powers of ten": lambda gold: (
        re.sub(SCIENTIFIC, r"\1 \\times 10^{\2}", gold) if re.fullmatch(SCIENTIFIC, gold) else None
    ),
    "no degrees": lambda gold: re.sub(r"\^\{?\\circ\}?", "", gold) if r"\circ" in gold else None,
}
"""Name of a notation -> function that writes a gold answer in it; None if not applicable."""


def read_golds() -> list[str]:
    """Return the different gold answers of the six benchmarks."""
    files = sorted(Path(os.environ["STAPO_BENCHMARK_ROWS"]).glob("*.parquet"))
    rows = [
        row["reward_model"]["ground_truth"] for f in files for row in pq.read_table(f).to_pylist()
    ]
    return sorted({last_boxed(row) or row for row in rows})


def other_pairs(golds: list[str], count: int) -> list[tuple[str, str, str]]:
    """Return golds with answers to other problems: neighbours in the alphabet, and random ones."""
    draw = random.Random(0)
    found = [("next in the alphabet", *pair) for pair in itertools.pairwise(golds)]
    chosen = [draw.sample(golds, 2) for _ in range(count)]
    return found + [("of another problem", gold, answer) for gold, answer in chosen]


def main() -> None:
    """Print verdicts by notation, and all pairs on which the two graders differ."""
    golds, console = read_golds(), Console(width=110)
    asked = [(name, g, a) for name, write in NOTATIONS.items() for g in golds if (a := write(g))]
    asked += other_pairs(golds, 3000)
    start = perf_counter()
    grades = grade_all([(gold, rf"\boxed{{{answer}}}") for _, gold, answer in asked], workers=2)
    seconds = perf_counter() - start
    counts: Counter[tuple[str, bool, bool]] = Counter(
        (name, one.correct, one.plain) for (name, _, _), one in zip(asked, grades, strict=True)
    )
    table = Table(box=None, title=f"{len(asked)} pairs of {len(golds)} golds, {seconds:.0f} s")
    kinds = (True, True), (True, False), (False, True), (False, False)
    columns = dict(zip(("both", "ours", "math-verify", "none"), kinds, strict=True))
    table.add_column("accepted by")
    for column in columns:
        table.add_column(column, justify="right")
    for name in dict.fromkeys(name for name, _, _ in asked):
        table.add_row(Text(name), *(str(counts[name, *key]) for key in columns.values()))
    console.print(table)
    for (name, gold, answer), one in zip(asked, grades, strict=True):
        if one.correct != one.plain:
            who = "ours" if one.correct else "math-verify"
            console.print(f"only {who}, {name}: {gold}  |  {answer}", markup=False)


if __name__ == "__main__":
    main()
