"""Computation of the paper-style table of one decoding: values, intervals, differences, headlines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from stapo.analysis import notes
from stapo.analysis.cells import Scores
from stapo.analysis.rows import (
    AVERAGE,
    CONTROL,
    WITHOUT,
    Comparison,
    Headline,
    MainTable,
    TableRow,
)
from stapo.evaluation.statistics import (
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    holm,
    interval,
    of_strongest,
    paired_difference,
    percent_interval,
    problem_counts,
    relative_gain,
    seed_choices,
)
from stapo.stages import jobs_of
from stapo.study import Study

BOOTSTRAP_SEED = 0
Row = tuple[str, str]
"""Size and method of a row."""


class Resampled(NamedTuple):
    """The accuracies of all rows, in percent, with resamples.

    Resamples contain the same problems for all rows and for all decodings, so that differences of resamples
    are paired by problem.
    """

    cells: dict[Row, dict[str, Interval]]
    """Row -> benchmark or average -> accuracy."""
    draws: dict[Row, dict[str, Array]]
    """Row -> average -> its resamples."""


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
    return Headline(target, gains, strongest, _mean([*gains.values()])) if gains else None


def main_table(study: Study, decoding: str, scores: Scores) -> MainTable:
    """Return the table of one decoding; resamples have a fixed seed, so that the result is deterministic."""
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    averages = averages_of(study.run.benchmarks)
    found = resampled(study, scores, averages, rng)
    targets, baselines = study.compared()
    pairs = {
        (size, target, baseline): ((size, target), (size, baseline))
        for size in study.run.sizes
        for target in targets
        for baseline in baselines
        if target != baseline
    }
    comparisons = _comparisons(pairs, study, scores, found, rng)
    differing = {c.target for c in comparisons if c.adjusted_p < notes.SIGNIFICANT}
    table = MainTable(
        study=study.name,
        decoding=decoding,
        title=study.decodings[decoding].title,
        samples={b: study.benchmarks[b].samples for b in study.run.benchmarks},
        averages=averages,
        problems=_problems(study, scores),
        rows=_rows(study, scores, found, comparisons),
        headlines={},
        comparisons=comparisons,
        choices=scores.choices if study.full_steps() else [],
        notes=[
            *notes.notes(study, differing),
            *notes.weights_notes(study, scores.same_weights),
            *notes.failure_notes(scores.cells),
            *notes.overlap_notes(scores.overlap),
        ],
        verifier=study.evaluation.verifier is not None,
        made_by=jobs_of(study).one("tables", decoding).fingerprint,
    )
    for target in targets:
        one = headline(table.values, target, baselines)
        table.headlines[target] = one and _with_interval(study, one, baselines, scores, found)
    return table


def checkpoint_table(study: Study, decoding: str, scores: Scores) -> MainTable:
    """Return the table of the sizes of a study, checkpoints from anywhere: each minus every earlier one."""
    table = main_table(study, decoding, scores)
    cells = [row.cells for row in table.rows]
    found = resampled(study, scores, table.averages)
    # Later rows minus earlier ones: a base model comes first.
    pairs = {
        ("", later, earlier): ((later, "base"), (earlier, "base"))
        for earlier, later in combinations(study.run.sizes, 2)
    }
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    failed = {("", size, name): cell for (size, _, name), cell in scores.cells.items()}
    return replace(
        table,
        rows=[
            replace(row, size="", method=row.size, title=row.size, best=_best(row.cells, cells))
            for row in table.rows
        ],
        comparisons=_comparisons(pairs, study, scores, found, rng),
        notes=[
            *notes.accuracy_notes(study),
            *[notes.compared_note(1)] * bool(pairs),
            *notes.failure_notes(failed),
        ],
        checkpoints=True,
    )


def averages_of(benchmarks: Sequence[str]) -> dict[str, list[str]]:
    """Return Avg, and the average without AIME24 if there are others, with the benchmarks of each."""
    others = [name for name in benchmarks if name != CONTROL]
    further = {WITHOUT: others} if 0 < len(others) < len(benchmarks) else {}
    return {AVERAGE: [*benchmarks], **further}


def resampled(
    study: Study,
    scores: Scores,
    averages: Mapping[str, list[str]],
    rng: np.random.Generator | None = None,
) -> Resampled:
    """Return the accuracies of all rows on all benchmarks, and some averages of them.

    Args:
        study: the study.
        scores: scores of one decoding.
        averages: name of an average -> its benchmarks.
        rng: by default a new generator, which draws the resamples of the main table.
    """
    rng = rng or np.random.default_rng(BOOTSTRAP_SEED)
    counts = {name: problem_counts(n, rng) for name, n in _problems(study, scores).items()}
    found = Resampled({}, {})
    for size in study.run.sizes:
        for method in ("base", *study.run.methods):
            cells = {b: scores.cells[size, method, b].correct for b in counts}
            seeds = seed_choices(len(next(iter(cells.values()))), rng)
            drawn = {b: 100 * bootstrap_means(cells[b], counts[b], seeds) for b in cells}
            values = {b: 100 * average_at_n(cells[b]) for b in cells}
            means: dict[str, Array] = {
                name: np.mean([drawn[b] for b in part], axis=0) for name, part in averages.items()
            }
            of_averages = {
                name: _mean([values[b] for b in part]) for name, part in averages.items()
            }
            every = {**drawn, **means}
            row = {n: percent_interval(v, every[n]) for n, v in {**values, **of_averages}.items()}
            found.cells[size, method], found.draws[size, method] = row, means
    return found


def _problems(study: Study, scores: Scores) -> dict[str, int]:
    first = study.run.sizes[0]
    return {b: scores.cells[first, "base", b].correct.shape[1] for b in study.run.benchmarks}


def _rows(
    study: Study, scores: Scores, found: Resampled, comparisons: list[Comparison]
) -> list[TableRow]:
    differs = {
        (c.size, c.target, c.baseline) for c in comparisons if c.adjusted_p < notes.SIGNIFICANT
    }
    targets, _ = study.compared()
    return [
        TableRow(
            size=size,
            method=method,
            title=study.title(method),
            source="" if method == "base" else study.method(method).source,
            cells=cells,
            best=_best(cells, [row for (other, _), row in found.cells.items() if other == size]),
            marks="".join(
                notes.mark(i) for i, name in enumerate(targets) if (size, name, method) in differs
            ),
            responses={b: scores.cells[size, method, b] for b in study.run.benchmarks},
        )
        for (size, method), cells in found.cells.items()
    ]


def _best(
    cells: Mapping[str, Interval], others: Sequence[Mapping[str, Interval]]
) -> frozenset[str]:
    """Return the columns in which no other row is better; values that are equal as printed are ties."""
    return frozenset(
        column
        for column, cell in cells.items()
        if round(cell.value, 2) == max(round(row[column].value, 2) for row in others)
    )


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _with_interval(
    study: Study, found: Headline, baselines: list[str], scores: Scores, of: Resampled
) -> Headline:
    """Return a headline with the interval of the cross-fitted gain; see `stapo.evaluation.statistics`."""
    benchmarks = study.run.benchmarks
    gains = []
    for size in found.gains:
        others = [name for name in baselines if name != found.target]
        cells = {name: [scores.cells[size, name, b].correct for b in benchmarks] for name in others}
        _, drawn = of_strongest(cells, {name: of.draws[size, name][AVERAGE] for name in others})
        gains.append(relative_gain(of.draws[size, found.target][AVERAGE], drawn))
    return replace(found, interval=interval(found.mean, np.mean(gains, axis=0)))


def _comparisons(
    pairs: Mapping[tuple[str, str, str], tuple[Row, Row]],
    study: Study,
    scores: Scores,
    of: Resampled,
    rng: np.random.Generator,
) -> list[Comparison]:
    """Return the difference of Avg of each pair of rows, adjusted by Holm as one family.

    The pairs are by size, target and baseline of the comparison; the second row is subtracted.
    """
    found = []
    for pair, rows in pairs.items():
        ours, theirs = (
            [scores.cells[*row, b].correct for b in study.run.benchmarks] for row in rows
        )
        gaps = {
            name: (drawn - of.draws[rows[1]][name]) / 100
            for name, drawn in of.draws[rows[0]].items()
        }
        further = {}
        for name in gaps.keys() - {AVERAGE}:
            one, other = (of.cells[row][name].value for row in rows)
            further[name.removeprefix(f"{AVERAGE} ")] = interval((one - other) / 100, gaps[name])
        difference = paired_difference(ours, theirs, gaps[AVERAGE], rng)
        found.append(Comparison(*pair, difference, 1.0, further))
    adjusted = holm([one.difference.p_value for one in found])
    return [replace(one, adjusted_p=p) for one, p in zip(found, adjusted, strict=True)]
