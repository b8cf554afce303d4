"""Computation of the paper-style table of one decoding: values, intervals, differences, headlines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stapo.analysis.cells import Scores
from stapo.analysis.notes import (
    SIGNIFICANT,
    failure_notes,
    mark,
    notes,
    overlap_notes,
    weights_notes,
)
from stapo.analysis.rows import AVERAGE, FURTHER, Comparison, Headline, MainTable, TableRow
from stapo.evaluation.statistics import (
    Array,
    Difference,
    Interval,
    average_at_n,
    bootstrap_means,
    holm,
    interval,
    paired_difference,
    percent_interval,
    problem_counts,
    relative_gain,
    seed_choices,
)
from stapo.stages import jobs_of
from stapo.study import Study

BOOTSTRAP_SEED = 0


def headline(
    averages: Mapping[str, Mapping[str, float]], target: str, baselines: Iterable[str]
) -> Headline | None:
    """Return the mean over sizes of 100 (target / strongest baseline - 1).

    Args:
        averages: size -> method -> average over the benchmarks. The strongest baseline of a size is
            the one with the highest average.
        target: method whose gain is computed.
        baselines: methods to compare with; the target itself is ignored.

    Returns:
        None if a size lacks the target or all baselines, or if its strongest baseline is at 0.

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
    """Return the table of one decoding; resamples have a fixed seed, so that the result is deterministic."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    averages = averages_of(study.run.benchmarks)
    problems = _problems(study, scores)
    intervals, draws = _intervals(study, scores, averages, problems, rng)
    comparisons = _comparisons(study, scores, intervals, draws, rng)
    table = MainTable(
        study=study.name,
        decoding=decoding,
        title=study.decodings[decoding].title,
        samples={b: study.benchmarks[b].samples for b in study.run.benchmarks},
        averages=averages,
        problems=problems,
        rows=_rows(study, scores, intervals, comparisons),
        headlines={},
        comparisons=comparisons,
        choices=scores.choices if study.full_steps() else [],
        notes=[
            *notes(study, {c.target for c in comparisons if c.adjusted_p < SIGNIFICANT}),
            *weights_notes(study, scores.same_weights),
            *failure_notes(scores.cells),
            *overlap_notes(scores.overlap),
        ],
        verifier=study.evaluation.verifier is not None,
        made_by=jobs_of(study).one("tables", decoding).fingerprint,
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
    """Return Avg and the further averages, with the benchmarks of each.

    Further averages over no benchmark or over all of them are left out.
    """
    parts = {name: [b for b in benchmarks if counts(b)] for name, counts in FURTHER.items()}
    further = {name: part for name, part in parts.items() if 0 < len(part) < len(benchmarks)}
    return {
        AVERAGE: [*benchmarks],
        **{average_column(name): part for name, part in further.items()},
    }


def average_column(further: str) -> str:
    """Return the column of an average of `FURTHER`."""
    return f"{AVERAGE} {further}"


def resampled(
    study: Study, scores: Scores, averages: Mapping[str, list[str]]
) -> tuple[dict[tuple[str, str], dict[str, Interval]], "Draws"]:
    """Return each row's intervals of some averages, in percent, and their resamples.

    Resamples are those of the main table. They contain the same problems for all rows, and for all decodings,
    so that differences of resamples are paired by problem.

    Args:
        study: the study.
        scores: scores of one decoding.
        averages: name of an average -> its benchmarks.
    """
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    return _intervals(study, scores, averages, _problems(study, scores), rng)


def _problems(study: Study, scores: Scores) -> dict[str, int]:
    first = study.run.sizes[0]
    return {b: scores.cells[first, "base", b].correct.shape[1] for b in study.run.benchmarks}


Row = tuple[str, str]
"""Size and method of a row."""
Draws = Mapping[Row, Mapping[str, Array]]
"""Row -> average -> its resamples, in percent."""


def _intervals(
    study: Study,
    scores: Scores,
    averages: Mapping[str, list[str]],
    problems: Mapping[str, int],
    rng: np.random.Generator,
) -> tuple[dict[tuple[str, str], dict[str, Interval]], Draws]:
    """Return the cells of each row, and the resamples of its averages."""
    names = study.run.benchmarks
    # Every row has the same resampled problems, since comparisons are paired.
    counts = {b: problem_counts(problems[b], rng) for b in names}
    draws: dict[tuple[str, str], dict[str, Array]] = {}
    intervals: dict[tuple[str, str], dict[str, Interval]] = {}
    for size in study.run.sizes:
        for method in ("base", *study.run.methods):
            cells = {b: scores.cells[size, method, b].correct for b in names}
            seeds = seed_choices(len(cells[names[0]]), rng)
            drawn = {b: 100 * bootstrap_means(cells[b], counts[b], seeds) for b in names}
            values = {b: 100 * average_at_n(cells[b]) for b in names}
            row = {b: percent_interval(values[b], drawn[b]) for b in names}
            means = {
                column: np.mean([drawn[b] for b in part], axis=0)
                for column, part in averages.items()
            }
            for column, part in averages.items():
                row[column] = percent_interval(_mean([values[b] for b in part]), means[column])
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
        best = best_columns(cells, others)
        rows.append(
            TableRow(
                size=size,
                method=method,
                title=study.title(method),
                source="" if method == "base" else study.method(method).source,
                cells=cells,
                best=best,
                marks="".join(
                    mark(i) for i, name in enumerate(targets) if (size, name, method) in differs
                ),
                responses={b: scores.cells[size, method, b] for b in study.run.benchmarks},
            )
        )
    return rows


def best_columns(
    cells: Mapping[str, Interval], others: Sequence[Mapping[str, Interval]]
) -> frozenset[str]:
    """Return the columns in which no other row is better; values that are equal as printed are ties."""
    return frozenset(
        column
        for column in cells
        if _shown(cells[column]) == max(_shown(row[column]) for row in others)
    )


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _shown(cell: Interval) -> float:
    return round(cell.value, 2)


def _with_interval(found: Headline, baselines: list[str], draws: Draws) -> Headline:
    """Return a headline with its interval; each resample has its own strongest baseline."""
    gains = []
    for size in found.gains:
        others = [draws[size, name][AVERAGE] for name in baselines if name != found.target]
        gains.append(relative_gain(draws[size, found.target][AVERAGE], others))
    return replace(found, interval=interval(found.mean, np.mean(gains, axis=0)))


def _comparisons(
    study: Study,
    scores: Scores,
    intervals: Mapping[tuple[str, str], Mapping[str, Interval]],
    draws: Draws,
    rng: np.random.Generator,
) -> list[Comparison]:
    """Return every target minus every baseline at every size, adjusted by Holm as one family."""
    targets, baselines = study.compared()
    pairs = [
        (size, target, baseline)
        for size in study.run.sizes
        for target in targets
        for baseline in baselines
        if target != baseline
    ]
    rows = [((size, target), (size, baseline)) for size, target, baseline in pairs]
    found = differences(rows, study.run.benchmarks, scores, intervals, draws, rng)
    return [Comparison(*pair, *one) for pair, one in zip(pairs, found, strict=True)]


def differences(
    pairs: Sequence[tuple[Row, Row]],
    benchmarks: Sequence[str],
    scores: Scores,
    intervals: Mapping[Row, Mapping[str, Interval]],
    draws: Draws,
    rng: np.random.Generator,
) -> list[tuple[Difference, float, dict[str, Interval]]]:
    """Return the difference of Avg of each pair of rows, adjusted by Holm as one family.

    Args:
        pairs: two rows each; the second is subtracted from the first.
        benchmarks: benchmarks of the table.
        scores: scores of one decoding.
        intervals: result of `resampled`.
        draws: the resamples of `resampled`.
        rng: random generator for the sign flips.

    Returns:
        Difference, adjusted p-value, and the differences of the averages of `FURTHER`.
    """
    found = []
    for first, second in pairs:
        ours, theirs = (
            [scores.cells[*row, b].correct for b in benchmarks] for row in (first, second)
        )
        gaps = {
            column: (drawn - draws[second][column]) / 100 for column, drawn in draws[first].items()
        }
        difference = paired_difference(ours, theirs, gaps[AVERAGE], rng)
        further = {}
        for name in FURTHER:
            if (column := average_column(name)) in gaps:
                one, other = (intervals[row][column].value for row in (first, second))
                further[name] = interval((one - other) / 100, gaps[column])
        found.append((difference, further))
    adjusted = holm([difference.p_value for difference, _ in found])
    return [
        (difference, p, further) for (difference, further), p in zip(found, adjusted, strict=True)
    ]
