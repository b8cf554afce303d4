"""Comparison of two files of verdicts that any tool gave; score files of studies are such files.

A file is JSON lines or Parquet, one row for each graded response, with the columns

- `problem`: name or number of the problem, the same in all files,
- `correct`: true or false, or 1 or 0,
- `sample` (if problems have several responses): number of the response,
- `benchmark` (if there are several): each counts the same in Avg,
- `seed` (if there are several): trainings of a method.

Differences are paired by problem, over the problems that both have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json
from rich.console import Console
from rich.text import Text

from stapo.analysis.table import Column, terminal_table, with_interval
from stapo.evaluation.statistics import (
    AVERAGE,
    Array,
    Interval,
    accuracies_of,
    holm,
    paired_difference,
    problem_counts,
)
from stapo.study import StudyError
from stapo.text import visible

SEED = 0
OPTIONAL: dict[str, Any] = {"benchmark": "problems", "seed": 0, "sample": 0}
"""Column that a file may lack -> what stands for it."""
Verdicts = Mapping[str, pd.DataFrame]
"""Benchmark -> verdicts: a row for each problem, a column for each (seed, sample), in their order."""
Pair = tuple[Array, Array]
"""Verdicts (S, P, N) of both files on the same problems."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One accuracy of two files, in percent, and its difference in points."""

    benchmark: str
    """A benchmark, or the average over those that are compared."""
    problems: int
    first: Interval
    second: Interval
    difference: Interval
    """Second minus first."""
    p_value: float
    detectable: float
    """Difference in points that is found with a power of 80 %."""
    p_holm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of B with A; as JSON, what `stapo compare --json` prints."""

    first: str
    second: str
    """A and B."""
    warnings: list[str]
    differences: list[Compared]


def compare(first: Path, second: Path) -> Comparison:
    """Return the comparison of two files; resamples have a fixed seed.

    Raises:
        StudyError: every reason why one cannot be read, or they have no problem in common.
    """
    errors: list[str] = []
    found: list[Verdicts] = []
    for path in (first, second):
        try:
            found.append(read_verdicts(path))
        except StudyError as error:
            errors += error.errors
    if errors:
        raise StudyError([visible(line) for line in errors])
    pairs, warnings = _pairs(*found)
    if not pairs:
        raise StudyError([f"{first} and {second} have no problem in common"])
    if 1 in {len(side) for pair in pairs.values() for side in pair}:
        warnings.append(
            "one training seed: differences are between checkpoints, not between methods"
        )
    rows = list(_differences(pairs))
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return Comparison(first=str(first), second=str(second), warnings=warnings, differences=rows)


def read_verdicts(path: Path) -> Verdicts:
    """Return the verdicts in a file.

    Raises:
        StudyError: one line for each fault, with its row.
    """
    frame = _rows(path)
    known = frame["problem"].notna() & frame["correct"].isin([0, 1])
    again = frame.duplicated(["problem", *OPTIONAL])
    rows = {"no problem, or its `correct` is not true or false": ~known}
    rows["this sample of this problem was given before; number the samples"] = again
    faults = [f"{path}, row {n}: {what}" for what, of in rows.items() for n in frame.index[of]]
    found = {}
    for benchmark, own in frame[known & ~again].groupby("benchmark", sort=False):
        grid: Any = own.pivot(
            index="problem", columns=["seed", "sample"], values="correct"
        ).sort_index(axis=1)
        seeds, samples = grid.columns.levels
        whole = grid.reindex(columns=pd.MultiIndex.from_product([seeds, samples]))
        uneven = whole.index[whole.isna().any(axis=1)]
        faults += [f"{path}: problem {one!r} of {benchmark!r} lacks samples" for one in uneven]
        found[str(benchmark)] = whole
    if faults:
        raise StudyError(faults)
    return found


def _rows(path: Path) -> pd.DataFrame:
    """Return the rows of a file, numbered from 1."""
    if not path.is_file():
        raise StudyError([f"{path}: expected a file of verdicts, in JSON lines or Parquet"])
    try:
        table = pq.ParquetFile(path).read() if path.suffix == ".parquet" else read_json(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        line = f"{path}: not JSON lines or Parquet, or damaged: {reason}"
        raise StudyError([line]) from error
    if absent := [name for name in ("problem", "correct") if name not in table.column_names]:
        raise StudyError([f"{path}: no column {' and '.join(absent)}"])
    columns = [name for name in ("problem", "correct", *OPTIONAL) if name in table.column_names]
    frame: Any = table.select(columns).to_pandas(ignore_metadata=True)
    for name, default in OPTIONAL.items():
        frame[name] = frame[name].fillna(default) if name in frame else default
    frame["problem"] = frame["problem"].map(str, na_action="ignore")
    numbered: pd.DataFrame = frame.set_index(np.arange(1, len(frame) + 1))
    return numbered


def _pairs(first: Verdicts, second: Verdicts) -> tuple[dict[str, Pair], list[str]]:
    """Return the verdicts on the problems that both have, and a line for each benchmark without some."""
    pairs: dict[str, Pair] = {}
    left_out = []
    for name in dict.fromkeys((*first, *second)):
        both = [of.get(name, pd.DataFrame()) for of in (first, second)]
        shared = both[0].index.intersection(both[1].index)
        for side, given in zip("AB", both, strict=True):
            if alone := len(given) - len(shared):
                left_out.append(
                    f"{name}: {alone} of {len(given)} problems are in {side} alone; left out"
                )
        if len(shared):
            one, other = (_array(given.loc[shared]) for given in both)
            pairs[name] = one, other
    return pairs, left_out


def _array(grid: pd.DataFrame) -> Array:
    """Return verdicts as an array (seeds, problems, samples)."""
    seeds = grid.columns.get_level_values(0).nunique()
    found: Array = grid.to_numpy(float).reshape(len(grid), seeds, -1).swapaxes(0, 1)
    return found


def _differences(pairs: Mapping[str, Pair]) -> Iterator[Compared]:
    """Yield the difference on each benchmark, and on average where there are several."""
    rng = np.random.default_rng(SEED)
    counts = {name: problem_counts(pair[0].shape[1], rng) for name, pair in pairs.items()}
    first, second = (
        accuracies_of({name: pair[side] for name, pair in pairs.items()}, counts, pairs, rng)
        for side in (0, 1)
    )
    parts = {name: [name] for name in pairs} | ({AVERAGE: [*pairs]} if len(pairs) > 1 else {})
    for name, of in parts.items():
        ours, theirs = ([pairs[one][side] for one in of] for side in (1, 0))
        gap = (second.draws[name] - first.draws[name]) / 100
        found = paired_difference(ours, theirs, gap, rng)
        yield Compared(
            benchmark=name,
            problems=sum(pairs[one][0].shape[1] for one in of),
            first=first.values[name],
            second=second.values[name],
            difference=found.times(100),
            p_value=found.p_value,
            detectable=100 * found.detectable,
        )


COLUMNS: list[Column[Compared]] = [
    Column("Benchmark", lambda row: row.benchmark, text=True),
    Column("Problems", lambda row: row.problems),
    Column("A [%]", lambda row: row.first),
    Column("B [%]", lambda row: row.second),
    Column("B - A [95 %]", lambda row: with_interval(row.difference, "+.2f")),
    Column("Detectable", lambda row: row.detectable, ".2f"),
    Column("p (Holm)", lambda row: row.p_holm, ".4f"),
]


def print_comparison(found: Comparison, console: Console) -> None:
    """Print both names, the warnings, and a table of the differences."""
    names = [f"A = {found.first}", f"B = {found.second}"]
    for line in [*names, *(f"warning: {line}" for line in found.warnings)]:
        console.print(Text(visible(line)))
    console.print(terminal_table(COLUMNS, [found.differences], Text("accuracy")), crop=False)
