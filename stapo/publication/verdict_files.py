"""Comparison of verdicts that any tool gave: files with problem, sample and whether it was correct.

A file is JSON lines or Parquet, one row for each graded response, with the columns

- `problem`: name or number of the problem, the same in all files,
- `correct`: true or false, or 1 or 0,
- `sample` (if problems have several responses): number of the response,
- `benchmark` (if there are several): each counts the same in Avg,
- `seed` (if there are several): trainings of a method.

Only problems that all files have are compared. Intervals and p-values are those of the main tables.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.evaluation.statistics import (
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    holm,
    paired_difference,
    percent_interval,
    problem_counts,
    seed_choices,
)
from stapo.study import StudyError
from stapo.text import plain, visible

AVERAGE = "Avg"
SUFFIXES = (".jsonl", ".parquet")
MAX_BYTES = 1 << 30
SHOWN = 20
"""Faults of a file that are listed."""
SEED = 0


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


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of one file."""

    name: str
    correct: Mapping[str, Mapping[str, Array]]
    """Benchmark -> problem -> (S, N) verdicts."""


@dataclass(frozen=True, kw_only=True)
class FileDifference:
    """Accuracies of two files in percent, and their difference in points, on a benchmark or on average."""

    benchmark: str
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
class FileComparison:
    """Comparison of a file B with a first one, A."""

    first: str
    second: str
    warnings: list[str]
    differences: list[FileDifference]


def compare_files(paths: Sequence[Path]) -> list[FileComparison]:
    """Return the comparison of each file with the first one; resamples have a fixed seed.

    Raises:
        StudyError: faults of all files, one line each, or two files have no problem in common.
    """
    errors, found = [], []
    for path in paths:
        try:
            found.append(read_verdicts(path))
        except StudyError as error:
            errors += error.errors
    if len(paths) < 2:
        errors.append(
            "expected two or more files, for example: stapo compare mine.jsonl theirs.jsonl"
        )
    if errors:
        raise StudyError([visible(line) for line in errors])
    return [_compare(found[0], other) for other in found[1:]]


def read_verdicts(path: Path) -> Verdicts:
    """Return the verdicts in a file.

    Raises:
        StudyError: one line for each fault, with its line or row.
    """
    if path.suffix not in SUFFIXES or not path.is_file():
        raise StudyError([f"{path}: expected a file that ends in {' or '.join(SUFFIXES)}"])
    if path.stat().st_size > MAX_BYTES:
        raise StudyError([f"{path}: larger than 1 GiB; split it by benchmark"])
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
    return Verdicts(path.name, correct)


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


def _compare(first: Verdicts, second: Verdicts) -> FileComparison:
    rng, warnings = np.random.default_rng(SEED), []
    pairs: dict[str, tuple[Array, Array]] = {}
    for name in dict.fromkeys((*first.correct, *second.correct)):
        ours, theirs = (one.correct.get(name, {}) for one in (first, second))
        shared = [problem for problem in ours if problem in theirs]
        for one, given in ((first, ours), (second, theirs)):
            if alone := len(given) - len(shared):
                warnings.append(
                    f"{name}: {alone} of {len(given)} problems are in {one.name} alone; left out"
                )
        if shared:
            pairs[name] = tuple(  # type: ignore[assignment]
                np.stack([given[problem] for problem in shared], axis=1) for given in (ours, theirs)
            )
    if not pairs:
        raise StudyError([f"{first.name} and {second.name} have no problem in common"])
    if any(len(cell) == 1 for pair in pairs.values() for cell in pair):
        warnings.append(
            "one training seed: differences are between checkpoints, not between methods"
        )
    rows = [*_differences(pairs, rng)]
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return FileComparison(first=first.name, second=second.name, warnings=warnings, differences=rows)


def _differences(
    pairs: Mapping[str, tuple[Array, Array]], rng: np.random.Generator
) -> Iterator[FileDifference]:
    """Yield the difference on each benchmark, and on average where there are several."""
    counts = {name: problem_counts(pair[0].shape[1], rng) for name, pair in pairs.items()}
    draws: list[dict[str, Array]] = []
    for side in (0, 1):
        seeds = {n: seed_choices(n, rng) for n in {len(pair[side]) for pair in pairs.values()}}
        draws.append(
            {
                name: bootstrap_means(pair[side], counts[name], seeds[len(pair[side])])
                for name, pair in pairs.items()
            }
        )
    parts = {name: [name] for name in pairs} | ({AVERAGE: [*pairs]} if len(pairs) > 1 else {})
    for name, of in parts.items():
        values, drawn = [], []
        for side in (0, 1):
            mean = float(np.mean([average_at_n(pairs[one][side]) for one in of]))
            drawn.append(np.mean([draws[side][one] for one in of], axis=0))
            values.append(percent_interval(100 * mean, 100 * drawn[-1]))
        found = paired_difference(
            [pairs[one][1] for one in of], [pairs[one][0] for one in of], drawn[1] - drawn[0], rng
        )
        yield FileDifference(
            benchmark=name,
            problems=sum(pairs[one][0].shape[1] for one in of),
            first=values[0],
            second=values[1],
            difference=Interval(*(100 * x for x in (found.value, found.low, found.high))),
            p_value=found.p_value,
            detectable=100 * found.detectable,
        )


def print_files(found: FileComparison, console: Console) -> None:
    """Print the warnings and a table of the differences."""
    for line in (f"A = {found.first}", f"B = {found.second}"):
        console.print(Text(visible(line)))
    for line in found.warnings:
        console.print(Text(visible(f"warning: {line}")))
    table = Table(box=None)
    table.add_column("Benchmark", overflow="fold")
    for heading in ("Problems", "A [%]", "B [%]", "B - A [95 %]", "p (Holm)", "detectable"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.differences:
        gap = row.difference
        table.add_row(
            Text(plain(row.benchmark)),
            str(row.problems),
            f"{row.first.value:.2f}",
            f"{row.second.value:.2f}",
            f"{gap.value:+.2f} [{gap.low:+.1f}, {gap.high:+.1f}]",
            f"{row.p_holm:.4f}",
            f"{row.detectable:.1f}",
        )
    console.print(table)
