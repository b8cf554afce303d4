"""Verdicts that any tool gave: files with problem, sample and whether it was correct.

A file is JSON lines or Parquet, one row for each graded response, with the columns

- `problem`: name or number of the problem, the same in all files,
- `correct`: true or false, or 1 or 0,
- `sample` (if problems have several responses): number of the response,
- `benchmark` (if there are several): each counts the same in Avg,
- `seed` (if there are several): trainings of a method.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json

from stapo.evaluation.statistics import Array
from stapo.study import StudyError

Verdicts = Mapping[str, Mapping[str, Array]]
"""Benchmark -> problem -> (S, N) verdicts."""
SUFFIXES = (".jsonl", ".parquet")
SHOWN = 20
"""Faults of a file that are listed."""


def read_verdicts(path: Path) -> Verdicts:
    """Return the verdicts in a file.

    Raises:
        StudyError: one line for each fault, with its row.
    """
    rows = _rows(path)
    faults: list[str] = []
    given: dict[tuple[str, str], dict[tuple[int, int], bool]] = defaultdict(dict)
    for number, row in enumerate(rows, 1):
        of = str(row.get("benchmark") or "problems"), str(row["problem"])
        at = int(row.get("seed") or 0), int(row.get("sample") or 0)
        if row["problem"] is None or row["correct"] not in (0, 1):
            faults.append(
                f"{path}, row {number}: no problem, or its `correct` is not true or false"
            )
        elif at in given[of]:
            which = f"sample {at[1]} of problem {of[1]!r}"
            faults.append(f"{path}, row {number}: {which} was given before; number the samples")
        given[of][at] = bool(row["correct"])
    faults += _uneven(path, given)
    if faults:
        more = len(faults) - SHOWN
        raise StudyError(faults[:SHOWN] + ([f"{path}: and {more} more"] if more > 0 else []))
    correct: dict[str, dict[str, Array]] = defaultdict(dict)
    for (benchmark, problem), own in given.items():
        seeds = len({seed for seed, _ in own})
        values = [own[at] for at in sorted(own)]
        correct[benchmark][problem] = np.array(values, dtype=float).reshape(seeds, -1)
    return correct


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise StudyError([f"{path}: no such file"])
    try:
        table = pq.ParquetFile(path).read() if path.suffix == ".parquet" else read_json(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise StudyError([f"{path}: not {path.suffix[1:]}, or damaged: {reason}"]) from error
    if absent := [name for name in ("problem", "correct") if name not in table.column_names]:
        raise StudyError([f"{path}: no column {' and '.join(absent)}"])
    for name in {"sample", "seed"} & {*table.column_names}:
        if not pa.types.is_integer(table.schema.field(name).type):
            raise StudyError([f"{path}: column {name}: expected whole numbers"])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _uneven(
    path: Path, given: Mapping[tuple[str, str], Mapping[tuple[int, int], bool]]
) -> Iterator[str]:
    """Yield a line for each problem that has other samples or seeds than the first one of its benchmark."""
    usual: dict[str, tuple[str, set[tuple[int, int]]]] = {}
    for (benchmark, problem), own in given.items():
        first, expected = usual.setdefault(benchmark, (problem, {*own}))
        if {*own} != expected:
            yield (
                f"{path}: problem {problem!r} of {benchmark!r} has {len(own)} responses, or other seeds "
                f"and samples; {first!r} has {len(expected)}"
            )
