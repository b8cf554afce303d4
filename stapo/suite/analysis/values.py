"""Tidy data of all main tables and of every training: one row per value, in percent and points.

Quantities over steps are in each training's `metrics.jsonl`.
"""

from collections.abc import Iterator
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from stapo.core.files import write
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.comparison import MainTable, TableRow, main_table, of_trainings
from stapo.suite.analysis.table import csv_text
from stapo.suite.evaluation.statistics import AVERAGE, Interval, pass_at_k

DECIMALS = 6
VERDICTS = {"by the rules": "correct", "with the verifier": "correct_with_verifier"}
STRONGEST = "strongest baseline"
"""Reference of a headline over several sizes, which may have several strongest baselines."""
COLUMNS = (
    "study", "size", "method", "reference", "seed", "step", "decoding", "benchmark", "metric", "value", "low",
    "high", "n", "p_value", "p_holm",
)  # fmt: skip
"""Columns of the CSV, described in docs/authors.md."""
Value = dict[str, Any]
"""One value: column -> its cell; None where one does not apply."""


def write_values(artefacts: Artefacts) -> Path:
    """Write the values of a finished study."""
    path = artefacts.root / paths.VALUES.format(study=artefacts.study.name)
    return write(path, csv_text([COLUMNS, *(value.values() for value in values_of(artefacts))]))


def values_of(artefacts: Artefacts) -> list[Value]:
    """Return the values of a study, each with all columns; equal scores give equal values."""
    study = artefacts.study
    values: list[Value] = []
    for decoding in study.run.decodings:
        table = main_table(study, decoding, artefacts.scores(decoding))
        values += [*_table_values(table), *_trainings(artefacts, table)]
    return [*map(_complete, values)]


def _complete(value: Value) -> Value:
    def rounded(cell: str | float | None) -> str | float | None:
        if isinstance(cell, float):
            # Without the sign of a negative zero.
            return round(cell, DECIMALS) + 0.0 if isfinite(cell) else None
        return cell

    return {name: rounded(value.get(name)) for name in COLUMNS}


def _numbers(estimate: Interval) -> Value:
    return {end: getattr(estimate, end) for end in ("value", "low", "high")}


def _problems(table: MainTable, benchmark: str) -> int:
    """Return the number of problems of a benchmark, or of all of Avg."""
    return (
        table.problems[benchmark] if benchmark in table.problems else sum(table.problems.values())
    )


def _table_values(table: MainTable) -> Iterator[Value]:
    """Yield the numbers of a main table: of its rows, its differences, and its headlines."""
    common = {"study": table.study.name, "decoding": table.decoding}
    for row, value in of_rows(table):
        at = {"size": row.size or None, "method": row.method}
        yield common | at | value | {"n": _problems(table, value["benchmark"])}
    for value in (*_differences(table), *_headlines(table)):
        yield common | value | {"n": _problems(table, value["benchmark"])}


def of_rows(table: MainTable) -> Iterator[tuple[TableRow, Value]]:
    """Yield each number of a row, a mean over the training seeds; benchmarks before averages."""

    def entry(benchmark: str, metric: str, value: float) -> tuple[TableRow, Value]:
        return row, {"benchmark": benchmark, "metric": metric, "value": value}

    for row in table.rows:
        for name, samples in table.samples.items():
            cell = row.responses[name]
            yield row, {"benchmark": name, "metric": f"avg@{samples}", **_numbers(row.cells[name])}
            for k in [2**i for i in range(samples.bit_length())]:
                yield entry(name, f"pass@{k}", 100 * pass_at_k(cell.correct, k))
        yield row, {"benchmark": AVERAGE, "metric": "avg@N", **_numbers(row.cells[AVERAGE])}
    for row in table.rows if table.study.evaluation.verifier else ():
        cells = {name: [cell] for name, cell in row.responses.items()}
        cells[AVERAGE] = [*row.responses.values()]
        for (name, responses), (by, column) in product(cells.items(), VERDICTS.items()):
            value = 100 * float(np.mean([cell.mean(column) for cell in responses]))
            yield entry(name, f"avg@{table.samples.get(name, 'N')} {by}", value)


def _differences(table: MainTable) -> Iterator[Value]:
    """Yield target minus reference in points, with p-values of Avg, in questions, and what is detectable."""
    for comparison in table.comparisons:
        difference = comparison.difference
        common = {
            "size": comparison.size or None,
            "method": comparison.target,
            "reference": comparison.baseline,
        }
        average, metric = common | {"benchmark": AVERAGE}, {"metric": "difference of avg@N"}
        tests = {"p_value": difference.p_value, "p_holm": comparison.adjusted_p}
        yield average | metric | _numbers(difference.times(100)) | tests
        yield average | {"metric": "difference in questions", "value": difference.questions}
        yield average | {"metric": "detectable difference", "value": 100 * difference.detectable}


def _headlines(table: MainTable) -> Iterator[Value]:
    """Yield the relative gains over the strongest baselines in percent, and their mean over the sizes."""
    common = {"benchmark": AVERAGE, "metric": "relative gain of avg@N"}
    for target, headline in table.headlines.items():
        if headline is None:
            continue
        labels = common | {"method": target}
        for size, gain in headline.gains.items():
            yield labels | {"size": size, "reference": headline.baselines[size], "value": gain}
        yield labels | {"reference": STRONGEST} | _numbers(headline.mean)


def _trainings(artefacts: Artefacts, table: MainTable) -> Iterator[Value]:
    """Yield the accuracy of each training's last weights on every benchmark; intervals are over problems."""
    study, decoding = artefacts.study, table.decoding
    last = {"step": study.training.steps, "decoding": decoding}
    for name, samples in table.samples.items():
        common = {"study": study.name, "benchmark": name, "metric": f"avg@{samples}"}
        for run, accuracy in of_trainings(artefacts, decoding, [name]).items():
            yield common | run._asdict() | last | _numbers(accuracy) | {"n": table.problems[name]}
