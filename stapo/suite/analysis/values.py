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
    return write(path, csv_text([COLUMNS, *(one.values() for one in values_of(artefacts))]))


def values_of(artefacts: Artefacts) -> list[Value]:
    """Return the values of a study, each with all columns; equal scores give equal values."""
    study = artefacts.study
    found: list[Value] = []
    for decoding in study.run.decodings:
        table = main_table(study, decoding, artefacts.scores(decoding))
        found += [*_values_of(table), *_trainings(artefacts, table)]
    return [*map(_complete, found)]


def _complete(value: Value) -> Value:
    def rounded(cell: str | float | None) -> str | float | None:
        if isinstance(cell, float):
            # Without the sign of a negative zero.
            return round(cell, DECIMALS) + 0.0 if isfinite(cell) else None
        return cell

    return {name: rounded(value.get(name)) for name in COLUMNS}


def _numbers(found: Interval) -> Value:
    return {end: getattr(found, end) for end in ("value", "low", "high")}


def _problems(table: MainTable, of: str) -> int:
    """Return the number of problems of a benchmark, or of all of Avg."""
    return table.problems[of] if of in table.problems else sum(table.problems.values())


def _values_of(table: MainTable) -> Iterator[Value]:
    """Yield the numbers of a main table: of its rows, its differences, and its headlines."""
    about = {"study": table.study.name, "decoding": table.decoding}
    for row, one in of_rows(table):
        at = {"size": row.size or None, "method": row.method}
        yield about | at | one | {"n": _problems(table, one["benchmark"])}
    for one in (*_differences(table), *_headlines(table)):
        yield about | one | {"n": _problems(table, one["benchmark"])}


def of_rows(table: MainTable) -> Iterator[tuple[TableRow, Value]]:
    """Yield each number of a row, a mean over the training seeds; benchmarks before averages."""

    def one(of: str, metric: str, value: float) -> tuple[TableRow, Value]:
        return row, {"benchmark": of, "metric": metric, "value": value}

    for row in table.rows:
        for name, samples in table.samples.items():
            cell = row.responses[name]
            yield row, {"benchmark": name, "metric": f"avg@{samples}", **_numbers(row.cells[name])}
            for k in [2**i for i in range(samples.bit_length())]:
                yield one(name, f"pass@{k}", 100 * pass_at_k(cell.correct, k))
        yield row, {"benchmark": AVERAGE, "metric": "avg@N", **_numbers(row.cells[AVERAGE])}
    for row in table.rows if table.study.evaluation.verifier else ():
        cells = {name: [cell] for name, cell in row.responses.items()}
        cells[AVERAGE] = [*row.responses.values()]
        for (name, of), (by, column) in product(cells.items(), VERDICTS.items()):
            value = 100 * float(np.mean([cell.mean(column) for cell in of]))
            yield one(name, f"avg@{table.samples.get(name, 'N')} {by}", value)


def _differences(table: MainTable) -> Iterator[Value]:
    """Yield target minus reference in points, with p-values of Avg, in questions, and what is detectable."""
    for one in table.comparisons:
        found = one.difference
        about = {"size": one.size or None, "method": one.target, "reference": one.baseline}
        average, metric = about | {"benchmark": AVERAGE}, {"metric": "difference of avg@N"}
        tests = {"p_value": found.p_value, "p_holm": one.adjusted_p}
        yield average | metric | _numbers(found.times(100)) | tests
        yield average | {"metric": "difference in questions", "value": found.questions}
        yield average | {"metric": "detectable difference", "value": 100 * found.detectable}


def _headlines(table: MainTable) -> Iterator[Value]:
    """Yield the relative gains over the strongest baselines in percent, and their mean over the sizes."""
    about = {"benchmark": AVERAGE, "metric": "relative gain of avg@N"}
    for target, found in table.headlines.items():
        if found is None:
            continue
        of = about | {"method": target}
        for size, gain in found.gains.items():
            yield of | {"size": size, "reference": found.baselines[size], "value": gain}
        yield of | {"reference": STRONGEST} | _numbers(found.mean)


def _trainings(artefacts: Artefacts, table: MainTable) -> Iterator[Value]:
    """Yield the accuracy of each training's last weights on every benchmark; intervals are over problems."""
    study, decoding = artefacts.study, table.decoding
    last = {"step": study.training.steps, "decoding": decoding}
    for name, samples in table.samples.items():
        about = {"study": study.name, "benchmark": name, "metric": f"avg@{samples}"}
        for run, found in of_trainings(artefacts, decoding, [name]).items():
            yield about | run._asdict() | last | _numbers(found) | {"n": table.problems[name]}
