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
from stapo.suite.analysis.formats import csv_text, read_csv
from stapo.suite.analysis.main_table import MainTable, main_table, of_trainings
from stapo.suite.evaluation.statistics import AVERAGE, Interval, pass_at_k

DECIMALS = 6
VERDICTS = {"by the rules": "correct", "with the verifier": "correct_with_verifier"}
STRONGEST = "strongest baseline"
"""Reference of a headline over several models, which may have several strongest baselines."""
COLUMNS = (
    "study", "model", "method", "reference", "seed", "step", "decoding", "benchmark", "metric", "value",
    "low", "high", "n", "p_value", "p_holm",
)  # fmt: skip
"""Columns of the CSV, described in docs/authors.md."""
Value = dict[str, Any]
"""One value: column -> its cell; None, or nothing, where one does not apply."""


def write_values(artefacts: Artefacts) -> Path:
    """Write the values of a finished study."""
    path = artefacts.root / paths.VALUES.format(study=artefacts.study.name)
    return write(path, csv_text([COLUMNS, *(value.values() for value in values_of(artefacts))]))


def read_values(study: str) -> list[Value]:
    """Return the values of a study from its file; an empty cell is None."""
    return read_csv(Path(paths.VALUES.format(study=study)), [*COLUMNS[:4], *COLUMNS[6:9]])


def values_of(artefacts: Artefacts) -> list[Value]:
    """Return the values of a study, each with all columns; equal scores give equal values."""
    values: list[Value] = []
    for decoding in artefacts.study.run.decodings:
        table = main_table(artefacts, decoding)
        common: Value = {"study": artefacts.study.name, "decoding": decoding}
        everything = sum(table.problems.values())
        for parts in (of_rows(table), _differences(table), _headlines(table)):
            for value in parts:
                number = table.problems.get(value["benchmark"], everything)
                values.append(common | value | {"n": number})
        values += [common | value for value in _trainings(artefacts, table)]
    return [{name: _rounded(value.get(name)) for name in COLUMNS} for value in values]


def _rounded(cell: str | float | None) -> str | float | None:
    if isinstance(cell, float):
        # Without the sign of a negative zero.
        return round(cell, DECIMALS) + 0.0 if isfinite(cell) else None
    return cell


def _numbers(estimate: Interval) -> Value:
    return {end: getattr(estimate, end) for end in ("value", "low", "high")}


def of_rows(table: MainTable) -> Iterator[Value]:
    """Yield each number of a row, a mean over the training seeds; benchmarks before averages."""
    for row in table.rows:
        at = {"model": row.model, "method": row.method}
        for name, samples in table.samples.items():
            here = at | {"benchmark": name}
            yield here | {"metric": f"avg@{samples}"} | _numbers(row.cells[name])
            for k in [2**i for i in range(samples.bit_length())]:
                share = pass_at_k(row.responses[name].correct, k)
                yield here | {"metric": f"pass@{k}", "value": 100 * share}
        yield at | {"benchmark": AVERAGE, "metric": "avg@N"} | _numbers(row.cells[AVERAGE])
    for row in table.rows if table.study.evaluation.verifier else ():
        cells = {name: [cell] for name, cell in row.responses.items()}
        cells[AVERAGE] = [*row.responses.values()]
        for (name, responses), (by, column) in product(cells.items(), VERDICTS.items()):
            value = 100 * float(np.mean([cell.mean(column) for cell in responses]))
            metric = f"avg@{table.samples.get(name, 'N')} {by}"
            at = {"model": row.model, "method": row.method, "benchmark": name}
            yield at | {"metric": metric, "value": value}


def _differences(table: MainTable) -> Iterator[Value]:
    """Yield target minus reference in points, with p-values of Avg, in questions, and what is detectable."""
    for comparison in table.comparisons:
        names = {"method": comparison.target, "reference": comparison.baseline}
        average = {"model": comparison.model or None, **names, "benchmark": AVERAGE}
        difference, metric = comparison.difference, {"metric": "difference of avg@N"}
        tests = {"p_value": difference.p_value, "p_holm": comparison.adjusted_p}
        yield average | metric | _numbers(difference.times(100)) | tests
        yield average | {"metric": "difference in questions", "value": difference.questions}
        yield average | {"metric": "detectable difference", "value": 100 * difference.detectable}


def _headlines(table: MainTable) -> Iterator[Value]:
    """Yield the relative gains over the strongest baselines in percent, and their mean over the models."""
    for target, headline in table.headlines.items():
        if headline is None:
            continue
        labels = {"benchmark": AVERAGE, "metric": "relative gain of avg@N", "method": target}
        for model, gain in headline.gains.items():
            yield labels | {"model": model, "reference": headline.baselines[model], "value": gain}
        yield labels | {"reference": STRONGEST} | _numbers(headline.mean)


def _trainings(artefacts: Artefacts, table: MainTable) -> Iterator[Value]:
    """Yield the accuracy of each training's last weights on every benchmark; intervals are over problems."""
    last = {"step": artefacts.study.training.steps}
    for name, samples in table.samples.items():
        common = last | {"benchmark": name, "metric": f"avg@{samples}", "n": table.problems[name]}
        for run, accuracy in of_trainings(artefacts, table.decoding, [name]).items():
            yield common | run._asdict() | _numbers(accuracy)
