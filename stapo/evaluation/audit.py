r"""Audit of the grader: the share of a benchmark's gold answers that it accepts in each usual notation.

A correct answer in a notation that the grader rejects counts as wrong, so this share is an upper limit of
the score. The last row tests the opposite: answers of other problems, which should be rejected unless they
are equal by coincidence.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.evaluation.grading import SCIENTIFIC, grade_all
from stapo.evaluation.task import load_rows
from stapo.study import StudyError
from stapo.tasks import benchmark_definitions

FRACTION = re.compile(r"\\d?frac\{([^{}]+)\}\{([^{}]+)\}")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def _decimal(gold: str) -> str | None:
    match = re.fullmatch(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}", gold)
    if not match or int(match[3]) == 0:
        return None
    value = int(match[2]) / int(match[3])
    # Only finite decimals: a rounded one is a different number.
    text = f"{match[1]}{value:.10f}".rstrip("0")
    return text if len(text) <= 8 else None


NOTATIONS: dict[str, Callable[[str], str | None]] = {
    "as given": lambda gold: gold,
    "in dollars": lambda gold: f"${gold}$",
    "with spaces": lambda gold: f" {gold} ",
    "with a full stop": lambda gold: f"{gold}.",
    "as x = ...": lambda gold: f"x = {gold}" if "=" not in gold and "," not in gold else None,
    "in \\text": lambda gold: rf"\text{{{gold}}}" if NUMBER.fullmatch(gold) else None,
    "with a thousands comma": lambda gold: (
        f"{int(gold):,}" if re.fullmatch(r"\d{4,}", gold) else None
    ),
    "with .0": lambda gold: f"{gold}.0" if re.fullmatch(r"-?\d+", gold) else None,
    "fractions as \\dfrac": lambda gold: (
        FRACTION.sub(r"\\dfrac{\1}{\2}", gold) if FRACTION.search(gold) else None
    ),
    "fractions as a/b": lambda gold: (
        FRACTION.sub(r"(\1)/(\2)", gold) if FRACTION.search(gold) else None
    ),
    "fractions as decimals": _decimal,
    "powers of ten": lambda gold: (
        SCIENTIFIC.sub(r"\1\\times10^{\2\3}", gold) if SCIENTIFIC.search(gold) else None
    ),
    "degrees left out": lambda gold: (
        re.sub(r"\^\{?\\circ\}?", "", gold) if "\\circ" in gold else None
    ),
}
"""Name of a notation -> function that writes a gold answer in it; None if not applicable."""


@dataclass(frozen=True)
class Ceiling:
    """Acceptance of one notation on one benchmark."""

    notation: str
    applicable: int
    accepted: int


def ceilings(golds: Sequence[str], *, workers: int = 1) -> list[Ceiling]:
    """Return the acceptance of every notation that applies to any of the gold answers."""
    asked = [
        (name, gold, rf"\boxed{{{written}}}")
        for name, write in NOTATIONS.items()
        for gold in golds
        if (written := write(gold)) is not None
    ]
    grades = grade_all([(gold, response) for _, gold, response in asked], workers=workers)
    found = []
    for name in NOTATIONS:
        own = [grade.correct for (n, _, _), grade in zip(asked, grades, strict=True) if n == name]
        if own:
            found.append(Ceiling(name, len(own), sum(own)))
    return found


def coincidences(golds: Sequence[str], *, workers: int = 1) -> list[tuple[str, str]]:
    """Return the pairs (gold, answer of the next problem) that the grader treats as equal."""
    shifted = [*golds[1:], *golds[:1]]
    pairs = list(zip(golds, shifted, strict=True))
    grades = grade_all([(a, rf"\boxed{{{b}}}") for a, b in pairs], workers=workers)
    return [pair for pair, grade in zip(pairs, grades, strict=True) if grade.correct]


def print_audit(benchmarks: Sequence[str]) -> None:
    """Print the acceptance of notations by benchmark, and the accepted answers of other problems.

    Raises:
        StudyError: unknown benchmarks.
    """
    tasks = benchmark_definitions()
    if unknown := [name for name in benchmarks if name not in tasks]:
        raise StudyError(
            [f"--benchmark: no task {name}; known: {', '.join(tasks)}" for name in unknown]
        )
    found, shared = {}, {}
    for name in benchmarks:
        golds = [str(row["answer"]) for row in load_rows(**tasks[name]["metadata"])["test"]]
        found[name] = {c.notation: c for c in ceilings(golds, workers=os.cpu_count() or 1)}
        shared[name] = coincidences(golds, workers=os.cpu_count() or 1)
    table = Table(title="accepted gold answers / those with the notation", box=None)
    for column in ("notation", *benchmarks):
        table.add_column(column, justify="left" if column == "notation" else "right")
    for notation in NOTATIONS:
        cells = [found[name].get(notation) for name in benchmarks]
        if any(cells):
            texts = [f"{c.accepted}/{c.applicable}" if c else "" for c in cells]
            table.add_row(Text(notation), *texts)
    table.add_row("the next problem's answer", *(str(len(shared[name])) for name in benchmarks))
    console = Console()
    console.print(table)
    for name, pairs in shared.items():
        for gold, other in pairs:
            console.print(Text(f"{name}: {other} is accepted for {gold}"))
