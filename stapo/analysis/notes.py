"""What stands under a table: how its numbers are to be read, and what is to be known of them."""

from collections.abc import Mapping

from stapo.analysis.cells import Cell
from stapo.analysis.selection import rule_text
from stapo.analysis.verdicts import verifier_notes
from stapo.study import Study

SIGNIFICANT = 0.05
FEW_SEEDS = 5
MARKS = "\u2020\u2021\u00a7\u00b6\u2016"
"""Dagger, double dagger, section sign, pilcrow, double bar: one for each target, then doubled."""


def mark(position: int) -> str:
    """Return the mark of the target at a position of the list."""
    return MARKS[position % len(MARKS)] * (position // len(MARKS) + 1)


def notes(study: Study) -> list[str]:
    """Return what a reader of the table must know."""
    seeds, (targets, baselines) = len(study.run.seeds), study.compared()
    lines = [
        "Mean over samples, then problems; 95 % intervals by bootstrap over problems"
        + (" and training seeds." if seeds > 1 else "."),
        "Avg is the plain mean of the benchmarks.",
    ]
    if targets and baselines:
        lines[-1] += (
            " Differences are paired by problem; p-values by sign flips, adjusted by Holm over all "
            "differences of this table. Questions are summed over the benchmarks. "
            "Detectable: the smallest difference found with a chance of 80 %."
        )
        lines += [
            f"{mark(i)} Avg of {study.method(name).title} differs from this one "
            f"(adjusted p < {SIGNIFICANT})."
            for i, name in enumerate(targets)
        ]
    if study.full_steps():
        lines.append(rule_text(study.evaluation.select, study.evaluation.development))
    lines += verifier_notes(study)
    if 1 < seeds < FEW_SEEDS:
        lines.append(
            f"{seeds} training seeds: so few do not show their own spread, intervals are too short."
        )
    if seeds == 1:
        lines.append("1 training seed: no claim about the methods, only about these checkpoints.")
    return lines


def failure_notes(cells: Mapping[tuple[str, str, str], Cell]) -> list[str]:
    """Return on how many answers of which cells the grader failed; nothing where on none."""
    found = [
        f"{size} {method} {benchmark} {cell.timeouts} timeouts, {cell.crashes} crashes "
        f"of {cell.correct.size}"
        for (size, method, benchmark), cell in cells.items()
        if cell.timeouts or cell.crashes
    ]
    if not found:
        return []
    return [f"Warning: answers that the grader could not judge count as wrong: {'; '.join(found)}."]


def overlap_notes(overlap: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return how many problems a training has seen, as far as words show it; nothing without trainings."""

    def counted(kind: str) -> str:
        found = [f"{name} {count}" for name, count in overlap[kind].items() if count]
        return ", ".join(found) or "none"

    if not overlap:
        return []
    return [
        f"Problems that are training prompts: {counted('shared')}; "
        f"with 13 words in a row in common with one: {counted('sharing_13_words')}."
    ]
