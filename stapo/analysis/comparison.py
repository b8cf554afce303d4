"""What the paper-style table of one decoding says: values, intervals, differences, headline."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stapo.analysis.cells import Cell, Scores
from stapo.analysis.selection import Choice, rule_text
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
from stapo.methods import BASELINES
from stapo.study import Study

AVERAGE = "Avg"
BOOTSTRAP_SEED = 0
SIGNIFICANT = 0.05
FEW_SEEDS = 5
MARK = "\u2020"


@dataclass(frozen=True)
class Headline:
    """The relative gain of STAPO's average over the strongest baseline's, in percent."""

    gains: dict[str, float]
    """By size."""
    baselines: dict[str, str]
    """The strongest baseline of each size."""
    mean: float
    """Over the sizes."""


@dataclass(frozen=True)
class Row:
    """One line of the table; values in percent."""

    size: str
    method: str
    title: str
    cells: dict[str, Interval]
    """By benchmark, and `Avg`."""
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
    significant: bool
    """Whether STAPO's Avg differs from this row's, after Holm's adjustment."""


@dataclass(frozen=True)
class Comparison:
    """STAPO minus a baseline, on the average of one size; in points of percent."""

    size: str
    baseline: str
    difference: Difference
    adjusted_p: float


@dataclass(frozen=True)
class MainTable:
    """Everything that is printed of one decoding."""

    study: str
    decoding: str
    benchmarks: dict[str, str]
    """Name to heading."""
    problems: dict[str, int]
    rows: list[Row]
    headline: Headline | None
    headline_interval: Interval | None
    comparisons: list[Comparison]
    choices: list[Choice]
    """Of each training with several checkpoints."""
    notes: list[str]
    made_by: str
    """Fingerprint of everything that leads to this table."""


def headline(averages: Mapping[str, Mapping[str, float]]) -> Headline | None:
    """Return the mean over sizes of 100 (STAPO / best baseline - 1).

    Args:
        averages: size -> method -> average over the benchmarks. The strongest baseline of a size is
            that of the highest average.

    Returns:
        None where a size lacks STAPO or every baseline, or where the strongest baseline is at 0.

    Source: STAPO's abstract; recomputed from its table it is 7.13 at T=1.0 and 3.71 at T=0.7.
    """
    gains, baselines = {}, {}
    for size, row in averages.items():
        present = [name for name in BASELINES if name in row]
        if "stapo" not in row or not present:
            return None
        baselines[size] = max(present, key=lambda name: row[name])
        if row[baselines[size]] <= 0:
            return None
        gains[size] = 100 * (row["stapo"] / row[baselines[size]] - 1)
    return Headline(gains, baselines, float(np.mean(list(gains.values())))) if gains else None


def main_table(study: Study, decoding: str, scores: Scores) -> MainTable:
    """Compute the table of one decoding; deterministic, the resamples have a fixed seed."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    names = study.run.benchmarks
    first = study.run.sizes[0]
    problems = {b: scores.cells[first, "base", b].correct.shape[1] for b in names}
    # The same problems for every row: what is compared is paired.
    counts = {b: problem_counts(problems[b], rng) for b in names}
    draws: dict[tuple[str, str], Array] = {}
    intervals: dict[tuple[str, str], dict[str, Interval]] = {}
    for size in study.run.sizes:
        for method in ("base", *study.run.methods):
            cells = {b: scores.cells[size, method, b].correct for b in names}
            seeds = seed_choices(len(cells[names[0]]), rng)
            by_benchmark = {b: bootstrap_means(cells[b], counts[b], seeds) for b in names}
            values = {b: 100 * average_at_n(cells[b]) for b in names}
            draws[size, method] = 100 * np.mean(list(by_benchmark.values()), axis=0)
            row = {b: interval(values[b], 100 * by_benchmark[b]) for b in names}
            row[AVERAGE] = interval(float(np.mean(list(values.values()))), draws[size, method])
            intervals[size, method] = row
    comparisons = _comparisons(study, scores, draws, rng)
    rows = _rows(study, scores, intervals, comparisons)
    averages: dict[str, dict[str, float]] = {}
    for one in rows:
        averages.setdefault(one.size, {})[one.method] = one.cells[AVERAGE].value
    found = headline(averages)
    return MainTable(
        study=study.name,
        decoding=decoding,
        benchmarks={b: f"{b} avg@{study.benchmarks[b].samples}" for b in names},
        problems=problems,
        rows=rows,
        headline=found,
        headline_interval=_headline_interval(found, draws) if found else None,
        comparisons=comparisons,
        choices=scores.choices if study.kept_steps() else [],
        notes=[*notes(study), *failure_notes(scores.cells), *overlap_notes(scores.overlap)],
        made_by=study.table_fingerprint(decoding),
    )


def _rows(
    study: Study,
    scores: Scores,
    intervals: dict[tuple[str, str], dict[str, Interval]],
    comparisons: list[Comparison],
) -> list[Row]:
    differs = {(c.size, c.baseline) for c in comparisons if c.adjusted_p < SIGNIFICANT}
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
            Row(
                size=size,
                method=method,
                title="Base" if method == "base" else study.method(method).title,
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
                significant=(size, method) in differs,
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


def _headline_interval(found: Headline, draws: dict[tuple[str, str], Array]) -> Interval:
    """Return the headline's interval; the strongest baseline is chosen anew in every resample."""
    gains = []
    for size in found.gains:
        present = [draws[size, name] for name in BASELINES if (size, name) in draws]
        strongest = np.max(present, axis=0)
        # A resample in which every baseline is at 0 has no relative gain: as good as none at all.
        gains.append(100 * (draws[size, "stapo"] / np.maximum(strongest, 1e-9) - 1))
    return interval(found.mean, np.mean(gains, axis=0))


def _comparisons(
    study: Study,
    scores: Scores,
    draws: dict[tuple[str, str], Array],
    rng: np.random.Generator,
) -> list[Comparison]:
    names = study.run.benchmarks
    pairs = [
        (size, baseline)
        for size in study.run.sizes
        for baseline in BASELINES
        if "stapo" in study.run.methods and baseline in study.run.methods
    ]
    differences = []
    for size, baseline in pairs:
        ours = [scores.cells[size, "stapo", b].correct for b in names]
        theirs = [scores.cells[size, baseline, b].correct for b in names]
        gaps = (draws[size, "stapo"] - draws[size, baseline]) / 100
        differences.append(paired_difference(ours, theirs, gaps, rng))
    adjusted = holm([difference.p_value for difference in differences])
    return [
        Comparison(size, baseline, difference, p)
        for (size, baseline), difference, p in zip(pairs, differences, adjusted, strict=True)
    ]


def notes(study: Study) -> list[str]:
    """Return what a reader of the table must know."""
    seeds = len(study.run.seeds)
    lines = [
        "Mean over samples, then problems; 95 % intervals by bootstrap over problems"
        + (" and training seeds." if seeds > 1 else "."),
        "Avg is the plain mean of the benchmarks. Differences are paired by problem; p-values by "
        "sign flips, adjusted by Holm over the baselines and sizes of this table. "
        "Questions are summed over the benchmarks. "
        "Detectable: the smallest difference found with a chance of 80 %.",
        f"{MARK} STAPO's Avg differs from this one (adjusted p < {SIGNIFICANT}).",
    ]
    if study.kept_steps():
        lines.append(rule_text(study.evaluation.select, study.evaluation.development))
    if study.evaluation.verdict == "verifier" and study.evaluation.verifier:
        lines.append(
            f"Answers that the rules reject count where {study.evaluation.verifier.hub} accepts them."
        )
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
