"""What the paper-style table of one decoding says: values, intervals, differences, headline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stapo.analysis.cells import Cell, Scores
from stapo.analysis.notes import SIGNIFICANT, failure_notes, mark, notes, overlap_notes
from stapo.analysis.selection import Choice
from stapo.analysis.verdicts import Verdicts, verdict_rows
from stapo.evaluation.statistics import (
    Array,
    Difference,
    Interval,
    average_at_n,
    bootstrap_means,
    holm,
    interval,
    paired_difference,
    pass_at_k,
    problem_counts,
    seed_choices,
)
from stapo.study import Study

AVERAGE = "Avg"
CONTROL = "aime24"
"""What methods may be tuned on unawares: its problems are older than the models (arXiv 2504.07086)."""
WITHOUT = "Avg without AIME24"
BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Headline:
    """The relative gain of a method's average over the strongest baseline's, in percent."""

    target: str
    gains: dict[str, float]
    """By size."""
    baselines: dict[str, str]
    """The strongest baseline of each size."""
    mean: float
    """Over the sizes."""
    interval: Interval | None = None
    """Of the mean; None where only averages are known."""


@dataclass(frozen=True)
class TableRow:
    """One line of the table; values in percent."""

    size: str
    method: str
    title: str
    cells: dict[str, Interval]
    """By benchmark, then by `MainTable.averages`."""
    best: frozenset[str]
    """The columns in which no other row of the size is better."""
    seeds: int
    num_tokens: float
    truncated: float
    no_box: float
    duplicate: float
    failed: float
    pass_at_k: dict[str, dict[int, float]]
    """By benchmark and k, in percent."""
    majority: dict[str, float]
    """By benchmark, in percent."""
    marks: str
    """Those of the targets whose Avg differs from this row's, after Holm's adjustment."""
    source: str
    """Where the method comes from and what the study changed of it; empty for the base model."""


@dataclass(frozen=True)
class Comparison:
    """A target minus a baseline, on the average of one size; shares of 1."""

    size: str
    target: str
    baseline: str
    difference: Difference
    adjusted_p: float
    without: Interval | None
    """The same on the average without AIME24, where the table has one."""


@dataclass(frozen=True)
class MainTable:
    """Everything that is printed of one decoding."""

    study: str
    decoding: str
    benchmarks: dict[str, str]
    """Name to heading."""
    averages: list[str]
    """Further columns: Avg, and Avg without AIME24 where that is another one."""
    problems: dict[str, int]
    rows: list[TableRow]
    headlines: dict[str, Headline | None]
    """By target."""
    comparisons: list[Comparison]
    choices: list[Choice]
    """Of each training with several checkpoints."""
    notes: list[str]
    verdicts: list[Verdicts]
    """Rules and verifier side by side; none without a verifier."""
    made_by: str
    """Fingerprint of everything that leads to this table."""

    @property
    def titles(self) -> dict[str, str]:
        """Of the methods."""
        return {row.method: row.title for row in self.rows}

    @property
    def values(self) -> dict[str, dict[str, float]]:
        """Size to method to Avg, in percent."""
        found: dict[str, dict[str, float]] = {}
        for row in self.rows:
            found.setdefault(row.size, {})[row.method] = row.cells[AVERAGE].value
        return found


def headline(
    averages: Mapping[str, Mapping[str, float]], target: str, baselines: Iterable[str]
) -> Headline | None:
    """Return the mean over sizes of 100 (target / strongest baseline - 1).

    Args:
        averages: size -> method -> average over the benchmarks. The strongest baseline of a size is
            that of the highest average.
        target: the method whose gain it is.
        baselines: the methods that it is compared with, itself not counted.

    Returns:
        None where a size lacks the target or every baseline, or where the strongest baseline is at 0.

    Source: STAPO's abstract; recomputed from its table it is 7.13 at T=1.0 and 3.71 at T=0.7.
    """
    gains, strongest = {}, {}
    for size, row in averages.items():
        present = [name for name in baselines if name in row and name != target]
        if target not in row or not present:
            return None
        strongest[size] = max(present, key=lambda name: row[name])
        if row[strongest[size]] <= 0:
            return None
        gains[size] = 100 * (row[target] / row[strongest[size]] - 1)
    mean = float(np.mean(list(gains.values()))) if gains else 0.0
    return Headline(target, gains, strongest, mean) if gains else None


def main_table(study: Study, decoding: str, scores: Scores) -> MainTable:
    """Compute the table of one decoding; deterministic, the resamples have a fixed seed."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    averages = averages_of(study.run.benchmarks)
    first = study.run.sizes[0]
    problems = {b: scores.cells[first, "base", b].correct.shape[1] for b in study.run.benchmarks}
    intervals, draws = _intervals(study, scores, averages, problems, rng)
    comparisons = _comparisons(study, scores, intervals, draws, rng)
    table = MainTable(
        study=study.name,
        decoding=decoding,
        benchmarks={b: f"{b} avg@{study.benchmarks[b].samples}" for b in study.run.benchmarks},
        averages=list(averages),
        problems=problems,
        rows=_rows(study, scores, intervals, comparisons),
        headlines={},
        comparisons=comparisons,
        choices=scores.choices if study.full_steps() else [],
        notes=[*notes(study), *failure_notes(scores.cells), *overlap_notes(scores.overlap)],
        verdicts=verdict_rows(study, scores.cells),
        made_by=study.table_fingerprint(decoding),
    )
    targets, baselines = study.compared()
    found = {target: headline(table.values, target, baselines) for target in targets}
    return replace(
        table,
        headlines={
            target: _with_interval(one, baselines, draws) if one else None
            for target, one in found.items()
        },
    )


def averages_of(benchmarks: Sequence[str]) -> dict[str, list[str]]:
    """Return the averages of a table with their benchmarks; one alone needs none without it."""
    others = [name for name in benchmarks if name != CONTROL]
    shown = {AVERAGE: list(benchmarks), WITHOUT: others}
    return shown if CONTROL in benchmarks and others else {AVERAGE: shown[AVERAGE]}


Draws = Mapping[tuple[str, str], Mapping[str, Array]]
"""(size, method) to the resamples of each average, in percent."""


def _intervals(
    study: Study,
    scores: Scores,
    averages: Mapping[str, list[str]],
    problems: Mapping[str, int],
    rng: np.random.Generator,
) -> tuple[dict[tuple[str, str], dict[str, Interval]], Draws]:
    """Return the cells of each row, and the resamples of its averages."""
    names = study.run.benchmarks
    # The same problems for every row: what is compared is paired.
    counts = {b: problem_counts(problems[b], rng) for b in names}
    draws: dict[tuple[str, str], dict[str, Array]] = {}
    intervals: dict[tuple[str, str], dict[str, Interval]] = {}
    for size in study.run.sizes:
        for method in ("base", *study.run.methods):
            cells = {b: scores.cells[size, method, b].correct for b in names}
            seeds = seed_choices(len(cells[names[0]]), rng)
            drawn = {b: 100 * bootstrap_means(cells[b], counts[b], seeds) for b in names}
            values = {b: 100 * average_at_n(cells[b]) for b in names}
            row = {b: interval(values[b], drawn[b]) for b in names}
            means = {
                column: np.mean([drawn[b] for b in part], axis=0)
                for column, part in averages.items()
            }
            for column, part in averages.items():
                row[column] = interval(_mean([values[b] for b in part]), means[column])
            draws[size, method], intervals[size, method] = means, row
    return intervals, draws


def _rows(
    study: Study,
    scores: Scores,
    intervals: dict[tuple[str, str], dict[str, Interval]],
    comparisons: list[Comparison],
) -> list[TableRow]:
    differs = {(c.size, c.target, c.baseline) for c in comparisons if c.adjusted_p < SIGNIFICANT}
    targets, _ = study.compared()
    rows = []
    for (size, method), cells in intervals.items():
        others = [row for (other, _), row in intervals.items() if other == size]
        parts = {b: scores.cells[size, method, b] for b in study.run.benchmarks}
        best = frozenset(
            column
            for column in cells
            if _shown(cells[column]) == max(_shown(o[column]) for o in others)
        )
        rows.append(
            TableRow(
                size=size,
                method=method,
                title=study.title(method),
                cells=cells,
                best=best,
                seeds=len(next(iter(parts.values())).correct),
                num_tokens=_mean([part.num_tokens for part in parts.values()]),
                truncated=100 * _mean([part.truncated_fraction for part in parts.values()]),
                no_box=100 * _mean([part.no_box_fraction for part in parts.values()]),
                duplicate=100 * _mean([part.duplicate_fraction for part in parts.values()]),
                failed=100 * _mean([part.failed_fraction for part in parts.values()]),
                pass_at_k={b: _pass_at_ks(part) for b, part in parts.items()},
                majority={b: 100 * part.majority for b, part in parts.items()},
                marks="".join(
                    mark(i) for i, name in enumerate(targets) if (size, name, method) in differs
                ),
                source="" if method == "base" else study.method(method).source,
            )
        )
    return rows


def _pass_at_ks(cell: Cell) -> dict[int, float]:
    """Return pass@k for the powers of two up to N."""
    samples = cell.correct.shape[2]
    ks = [2**i for i in range(samples.bit_length()) if 2**i <= samples]
    return {k: 100 * pass_at_k(cell.correct, k) for k in ks}


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _shown(cell: Interval) -> float:
    # Ties as a reader sees them.
    return round(cell.value, 2)


def _with_interval(found: Headline, baselines: list[str], draws: Draws) -> Headline:
    """Return a headline with its interval; the strongest baseline is chosen anew in every resample."""
    gains = []
    for size in found.gains:
        others = [draws[size, name][AVERAGE] for name in baselines if name != found.target]
        strongest = np.max(others, axis=0)
        # A resample in which every baseline is at 0 has no relative gain: as good as none at all.
        ours = draws[size, found.target][AVERAGE]
        gains.append(100 * (ours / np.maximum(strongest, 1e-9) - 1))
    return replace(found, interval=interval(found.mean, np.mean(gains, axis=0)))


def _comparisons(
    study: Study,
    scores: Scores,
    intervals: Mapping[tuple[str, str], Mapping[str, Interval]],
    draws: Draws,
    rng: np.random.Generator,
) -> list[Comparison]:
    """Return every target minus every baseline at every size: one family for Holm's adjustment."""
    targets, baselines = study.compared()
    pairs = [
        (size, target, baseline)
        for size in study.run.sizes
        for target in targets
        for baseline in baselines
        if target != baseline
    ]
    found = []
    for size, target, baseline in pairs:
        ours, theirs = (
            [scores.cells[size, name, b].correct for b in study.run.benchmarks]
            for name in (target, baseline)
        )
        gaps = {
            column: (drawn - draws[size, baseline][column]) / 100
            for column, drawn in draws[size, target].items()
        }
        difference = paired_difference(ours, theirs, gaps[AVERAGE], rng)
        without = None
        if WITHOUT in gaps:
            one, other = (intervals[size, name][WITHOUT].value for name in (target, baseline))
            without = interval((one - other) / 100, gaps[WITHOUT])
        found.append((difference, without))
    adjusted = holm([difference.p_value for difference, _ in found])
    return [
        Comparison(*pair, difference, p, without)
        for pair, (difference, without), p in zip(pairs, found, adjusted, strict=True)
    ]
