"""Every number of the main tables, and the accuracy of every checkpoint, as tidy data: one row per value.

Accuracies are in percent and their differences in points, as in the tables. Numbers are rounded to six
decimals, so that CSV and Parquet hold the same ones. Training quantities over steps are not repeated here:
each training's `metrics.jsonl` has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import VERDICT_COLUMNS, by_problem, read_tables
from stapo.analysis.columns import csv_lines, problems_of
from stapo.analysis.comparison import BOOTSTRAP_SEED, average_column, main_table
from stapo.analysis.formats import csv_text
from stapo.analysis.rows import AVERAGE, MainTable
from stapo.evaluation.statistics import (
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    interval,
    problem_counts,
)
from stapo.files import replace_file
from stapo.study import Checkpoint, Study

DECIMALS = 6
STRONGEST = "strongest baseline"
"""Reference of a headline over several sizes, which may have several strongest baselines."""
SCHEMA = pa.schema(
    [
        ("study", pa.string()),
        ("size", pa.string()),
        ("method", pa.string()),
        ("reference", pa.string()),
        ("seed", pa.int64()),
        ("step", pa.int64()),
        ("decoding", pa.string()),
        ("benchmark", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("n", pa.int64()),
        ("p_value", pa.float64()),
        ("p_holm", pa.float64()),
    ]
)
"""Columns of the Parquet file and the CSV, described in docs/authors.md; null where one does not apply."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value; the fields are the columns of `SCHEMA`."""

    study: str
    """Name of the study."""
    size: str | None
    """None for a mean over the sizes, and where it is unknown."""
    method: str
    """Name in the study, `base` for the base model."""
    reference: str | None = None
    """What is subtracted, or what a gain is relative to."""
    seed: int | None = None
    """Training seed; None for the mean over seeds and for the base model."""
    step: int | None = None
    """Optimiser step of one checkpoint, 0 for the base model; None for a row of a main table."""
    decoding: str
    """Name of the decoding."""
    benchmark: str
    """A benchmark, or an average over several."""
    metric: str
    """What the value is; docs/authors.md lists them."""
    value: float
    """Accuracies in percent, differences in points, numbers as numbers."""
    low: float | None = None
    """Lower bound of the 95 % interval."""
    high: float | None = None
    """Upper bound of the 95 % interval."""
    n: int
    """Number of problems, summed over the benchmarks of an average: what the interval resamples."""
    p_value: float | None = None
    """Two-sided p-value of a difference: `statistics.paired_difference`."""
    p_holm: float | None = None
    """The same, adjusted by Holm over all differences of the decoding's table."""


def write_values(study: Study, root: Path = Path()) -> list[Path]:
    """Write the values of a finished study as CSV and Parquet.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    return _write(values_table(Artefacts(study, root)), study.name, root)


def write_values_of(tables: Sequence[MainTable]) -> list[Path]:
    """Write the values of tables alone, without those of intermediate checkpoints, as CSV and Parquet."""
    values = [value for table in tables for value in _values_of(table)]
    return _write(_as_table(values), tables[0].study, Path())


def _write(table: pa.Table, study: str, root: Path) -> list[Path]:
    path = {s: root / paths.VALUES.format(study=study, suffix=s) for s in paths.VALUE_SUFFIXES}
    with replace_file(path["csv"]) as text:
        text.write(values_csv(table))
    with replace_file(path["parquet"], "wb") as binary:
        pq.write_table(table, binary)
    return [*path.values()]


def values_table(artefacts: Artefacts) -> pa.Table:
    """Return the values of a study; equal scores give equal values.

    Raises:
        StaleScoreError: scores do not belong to this study in its current state.
    """
    study = artefacts.study
    found: list[Value] = []
    for decoding in study.run.decodings:
        found += _values_of(main_table(study, decoding, artefacts.scores(decoding)))
        found += _checkpoints(artefacts, decoding)
    return _as_table(found)


def _values_of(table: MainTable) -> list[Value]:
    return [*_rows(table), *_differences(table), *_headlines(table)]


def _as_table(values: Sequence[Value]) -> pa.Table:
    columns = zip(*(astuple(value) for value in values), strict=True)
    return pa.table(
        {
            field.name: pa.array([*map(_stored, column)], field.type)
            for field, column in zip(SCHEMA, columns, strict=True)
        },
        schema=SCHEMA,
    )


def values_csv(table: pa.Table) -> str:
    """Return the values as CSV, empty where a column is null."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return csv_text([table.column_names, *(map(_written, row) for row in rows)])


def _stored(cell: str | float | None) -> str | float | None:
    if isinstance(cell, float):
        # Without the sign of a negative zero.
        return round(cell, DECIMALS) + 0.0 if isfinite(cell) else None
    return cell


def _written(cell: str | float | None) -> str:
    if isinstance(cell, float):
        return f"{cell:.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "" if cell is None else str(cell)


def _rows(table: MainTable) -> Iterator[Value]:
    """Yield the numbers of the rows: means over the training seeds."""
    for line in csv_lines(table):
        cell = line.value
        found = cell if isinstance(cell, Interval) else Interval(float(cell), nan, nan)
        yield Value(
            study=table.study,
            size=line.row.size or None,
            method=line.row.method,
            decoding=table.decoding,
            benchmark=line.of,
            metric=line.metric,
            value=found.value,
            low=found.low,
            high=found.high,
            n=problems_of(table, line.of),
        )


def _differences(table: MainTable) -> Iterator[Value]:
    """Yield target minus reference in points, with p-values of Avg, in questions, and what is detectable."""
    for one in table.comparisons:
        about: dict[str, Any] = {"study": table.study, "size": one.size or None}
        about |= {"method": one.target, "reference": one.baseline, "decoding": table.decoding}
        found = one.difference
        numbers: dict[str, Any] = {"benchmark": AVERAGE, "n": problems_of(table, AVERAGE)}
        yield Value(
            **about,
            **numbers,
            metric="difference of avg@N",
            value=100 * found.value,
            low=100 * found.low,
            high=100 * found.high,
            p_value=found.p_value,
            p_holm=one.adjusted_p,
        )
        yield Value(**about, **numbers, metric="difference in questions", value=found.questions)
        detectable = 100 * found.detectable
        yield Value(**about, **numbers, metric="detectable difference", value=detectable)
        for name, further in one.further.items():
            column = average_column(name)
            yield Value(
                **about,
                benchmark=column,
                metric="difference of avg@N",
                value=100 * further.value,
                low=100 * further.low,
                high=100 * further.high,
                n=problems_of(table, column),
            )


def _headlines(table: MainTable) -> Iterator[Value]:
    """Yield the relative gains over the strongest baselines in percent, and their mean over the sizes."""
    about: dict[str, Any] = {"study": table.study, "decoding": table.decoding}
    about |= {"benchmark": AVERAGE, "metric": "relative gain of avg@N"}
    for target, found in table.headlines.items():
        if found is None or found.interval is None:
            continue
        n = problems_of(table, AVERAGE)
        for size, gain in found.gains.items():
            baseline = found.baselines[size]
            yield Value(**about, size=size, method=target, reference=baseline, value=gain, n=n)
        yield Value(
            **about,
            size=None,
            method=target,
            reference=STRONGEST,
            value=found.mean,
            low=found.interval.low,
            high=found.interval.high,
            n=n,
        )


def _checkpoints(artefacts: Artefacts, decoding: str) -> Iterator[Value]:
    """Yield the accuracy of every checkpoint on every benchmark that it answered, over resampled problems."""
    study = artefacts.study
    column = VERDICT_COLUMNS[study.evaluation.verdict]
    cells = list(study.cells(decoding))
    tables, _ = read_tables(study, decoding, cells, artefacts.root)
    counts: dict[str, Array] = {}
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    for checkpoint, benchmark in cells:
        samples = study.benchmarks[benchmark].samples
        correct = by_problem(tables[checkpoint, benchmark].to_pydict(), samples, column)[None]
        problems = correct.shape[1]
        if benchmark not in counts:
            counts[benchmark] = problem_counts(problems, rng)
        one_seed = np.zeros((len(counts[benchmark]), 1), dtype=np.int64)
        drawn = bootstrap_means(correct, counts[benchmark], one_seed)
        found = interval(average_at_n(correct), drawn)
        yield Value(
            study=study.name,
            size=checkpoint.size,
            method=checkpoint.method or "base",
            seed=checkpoint.run.seed if checkpoint.run else None,
            step=_step(study, checkpoint),
            decoding=decoding,
            benchmark=benchmark,
            metric=f"avg@{samples}",
            value=100 * found.value,
            low=100 * found.low,
            high=100 * found.high,
            n=problems,
        )


def _step(study: Study, checkpoint: Checkpoint) -> int:
    if checkpoint.run is None:
        return 0
    return study.training.steps if checkpoint.step is None else checkpoint.step
