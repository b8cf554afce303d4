"""Verdicts that any tool gave: files with problem, sample and whether it was correct.

A file is JSON lines or Parquet, one row for each graded response, with the columns

- `problem`: name or number of the problem, the same in all files,
- `correct`: true or false, or 1 or 0,
- `sample` (if problems have several responses): number of the response,
- `benchmark` (if there are several): each counts the same in Avg,
- `seed` (if there are several): trainings of a method.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from stapo.evaluation.statistics import Array
from stapo.study import StudyError

Verdicts = Mapping[str, Mapping[str, Array]]
"""Benchmark -> problem -> (S, N) verdicts."""
SUFFIXES = (".jsonl", ".parquet")
SHOWN = 20
"""Faults of a file that are listed."""


def _truth(value: Any) -> Any:
    return bool(value) if value in (0, 1) and isinstance(value, int | float) else value


class Row(BaseModel):
    """One graded response."""

    model_config = ConfigDict(extra="ignore", strict=True)

    problem: Annotated[str, BeforeValidator(lambda x: str(x) if isinstance(x, int) else x)]
    correct: Annotated[bool, BeforeValidator(_truth)]
    sample: int = 0
    benchmark: str = "problems"
    seed: int = 0


def read_verdicts(path: Path) -> Verdicts:
    """Return the verdicts in a file.

    Raises:
        StudyError: one line for each fault, with its line or row.
    """
    if not path.is_file():
        raise StudyError([f"{path}: no such file"])
    place = "row" if path.suffix == ".parquet" else "line"
    faults: list[str] = []
    responses: dict[tuple[str, str], dict[tuple[int, int], bool]] = defaultdict(dict)
    for number, record in _records(path):
        try:
            row = Row.model_validate(record)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "row"
            faults.append(f"{path}, {place} {number}: {where}: {first['msg']}")
            continue
        given = responses[row.benchmark, row.problem]
        if (row.seed, row.sample) in given:
            which = f"sample {row.sample} of problem {row.problem!r}"
            faults.append(f"{path}, {place} {number}: {which} was given before; number the samples")
        given[row.seed, row.sample] = row.correct
    if not responses and not faults:
        faults.append(f"{path}: no rows")
    faults += _uneven(path, responses)
    if faults:
        more = len(faults) - SHOWN
        raise StudyError(faults[:SHOWN] + ([f"{path}: and {more} more"] if more > 0 else []))
    correct: dict[str, dict[str, Array]] = defaultdict(dict)
    for (benchmark, problem), given in responses.items():
        seeds = len({seed for seed, _ in given})
        values = [given[at] for at in sorted(given)]
        correct[benchmark][problem] = np.array(values, dtype=float).reshape(seeds, -1)
    return correct


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield number and content of each row, None for what is no JSON."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            yield from enumerate(pq.ParquetFile(path).read().to_pylist(), 1)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StudyError([f"{path}: not a Parquet file, truncated or corrupt"]) from error
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError):
                    yield number, None


def _uneven(
    path: Path, responses: Mapping[tuple[str, str], Mapping[tuple[int, int], bool]]
) -> Iterator[str]:
    """Yield a line for each problem that has other samples or seeds than the first one of its benchmark."""
    usual: dict[str, tuple[str, set[tuple[int, int]]]] = {}
    for (benchmark, problem), given in responses.items():
        first, expected = usual.setdefault(benchmark, (problem, {*given}))
        if {*given} != expected:
            yield (
                f"{path}: problem {problem!r} of {benchmark!r} has {len(given)} responses, or other seeds "
                f"and samples; {first!r} has {len(expected)}"
            )
