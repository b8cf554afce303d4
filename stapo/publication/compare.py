"""Comparison of accuracies: of finished results folders, or of files of verdicts that any tool gave.

Folders are untrusted and opened as `verify` opens them. A file is JSON lines or Parquet, one row for each
graded response, with the columns

- `problem`: name or number of the problem, the same in all files,
- `correct`: true or false, or 1 or 0,
- `sample` (if problems have several responses): number of the response,
- `benchmark` (if there are several): each counts the same in Avg,
- `seed` (if there are several): trainings of a method.

Differences are paired by problem, over the problems that both have.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.json import read_json
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.analysis.cells import SAME_EVERYWHERE, SAME_PACKAGES, chosen_cells, read_tables
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
from stapo.files import fingerprint, leaves
from stapo.publication.folder import Results
from stapo.publication.verify import UNREADABLE, opened
from stapo.study import Study, StudyError
from stapo.text import plain, visible

AVERAGE = "Avg"
SEED = 0
SIGNIFICANT = 0.05
NAMED = {"models": "sizes", "decodings": "decodings", "benchmarks": "benchmarks"}
"""Section of a study file -> list in `run` that says which of its entries are used."""

Row = tuple[str, str, str]
"""Decoding, size, and method or `base`; empty for files."""
Verdicts = Mapping[str, Mapping[str, Array]]
"""Benchmark -> problem -> (S, N) verdicts."""
SUFFIXES = (".jsonl", ".parquet")
SHOWN = 20
"""Faults of a file that are listed."""
Pair = tuple[Array, Array]
"""Verdicts (S, P, N) of both sides on the same problems."""


@dataclass(frozen=True)
class Side:
    """What is compared of one study or file."""

    name: str
    verdicts: Mapping[Row, Verdicts]
    study: Study | None = None
    made_with: Mapping[str, Any] = field(default_factory=dict)
    """What its scores were made with, such as `torch` -> version."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One accuracy of two sides, in percent, and its difference in points."""

    decoding: str
    size: str
    method: str
    title: str
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
    summary: list[str]
    """The result in words."""
    warnings: list[str]
    settings: list[tuple[str, Any, Any]]
    """Place and both values of each setting that differs; None where a study does not have it."""
    differences: list[Compared]


def compare(paths: Sequence[Path]) -> list[Comparison]:
    """Return the comparison of each folder or file with the first one; resamples have a fixed seed.

    Raises:
        StudyError: every reason why one cannot be read, or two have nothing in common.
    """
    if len(paths) < 2:
        example = "stapo compare results/smoke other/smoke"
        raise StudyError([f"expected two or more folders or files, for example: {example}"])
    errors: list[str] = []
    found: list[Side] = []
    for path in paths:
        try:
            if path.suffix in SUFFIXES:
                found.append(Side(path.name, {("", "", ""): read_verdicts(path)}))
            else:
                with _readable(path) as results:
                    found.append(_side(path, results))
        except StudyError as error:
            errors += error.errors
        except UNREADABLE as error:
            errors += [f"{path}: {line}" for line in str(error).splitlines()]
    if errors:
        raise StudyError([visible(line) for line in errors])
    return [_compare(found[0], other) for other in found[1:]]


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


@contextmanager
def _readable(folder: Path) -> Iterator[Results]:
    """Yield the results of a folder; raise a `StudyError` if they may not be read, or lack the scores."""
    with opened(folder) as (results, refused):
        if results.is_summary and not refused:
            refused = ["without its raw data; the scores are needed to compare"]
        if refused:
            raise StudyError([f"{folder}: {line}" for line in refused])
        yield results


def _side(folder: Path, results: Results) -> Side:
    """Return what is compared of a folder that may be read.

    Raises:
        ValueError: scores are missing, damaged or misplaced; other errors of `UNREADABLE` too.
    """
    study = results.study
    verdicts: dict[Row, dict[str, dict[str, Array]]] = {}
    made_with: dict[str, Any] = {}
    problems: dict[str, list[str]] = {}
    for decoding in study.run.decodings:
        wanted = list(study.table_cells(decoding))
        tables, made = read_tables(study, decoding, wanted, results.root)
        for checkpoint, benchmark in wanted:
            answered = results.responses(checkpoint, decoding, benchmark)
            asked = [f"{fingerprint([one.question, one.gold])} {one.problem}" for one in answered]
            if problems.setdefault(benchmark, asked) != asked:
                raise ValueError(f"{benchmark}: checkpoints answered different problems")
            if (rows := tables[checkpoint, benchmark].num_rows) % len(asked):
                raise ValueError(f"{benchmark}: {rows} rows for {len(asked)} problems")
        for (size, method, benchmark), cell in chosen_cells(study, tables).items():
            by_problem = zip(problems[benchmark], np.moveaxis(cell.correct, 1, 0), strict=True)
            verdicts.setdefault((decoding, size, method), {})[benchmark] = dict(by_problem)
        made_with = {**made, **made.get("packages", {})}
    versions = {key: made_with.get(key) for key in (*SAME_EVERYWHERE, *SAME_PACKAGES, "commit")}
    return Side(str(folder), verdicts, study, versions)


def _compare(first: Side, second: Side) -> Comparison:
    warnings = list(_warnings(first, second))
    rows: list[Compared] = []
    for row in [row for row in first.verdicts if row in second.verdicts]:
        pairs, left_out = _pairs(first.verdicts[row], second.verdicts[row])
        warnings += [line for line in left_out if line not in warnings]
        rows += _differences(row, first.study, pairs)
    if first.study is None and not rows:
        raise StudyError([f"{first.name} and {second.name} have no problem in common"])
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    before, after = (leaves(_used(one.study)) if one.study else {} for one in (first, second))
    settings = [(place, before.get(place), after.get(place)) for place in {**before, **after}]
    return Comparison(
        first=first.name,
        second=second.name,
        summary=_summary(rows),
        warnings=warnings,
        settings=[(place, one, other) for place, one, other in settings if one != other],
        differences=rows,
    )


def _pairs(first: Verdicts, second: Verdicts) -> tuple[dict[str, Pair], list[str]]:
    """Return the verdicts on the problems that both have, and a line for each benchmark without some."""
    pairs: dict[str, Pair] = {}
    left_out = []
    for name in dict.fromkeys((*first, *second)):
        ours, theirs = first.get(name, {}), second.get(name, {})
        shared = [problem for problem in ours if problem in theirs]
        for side, given in (("A", ours), ("B", theirs)):
            if alone := len(given) - len(shared):
                left_out.append(
                    f"{name}: {alone} of {len(given)} problems are in {side} alone; left out"
                )
        if shared:
            one, other = (np.stack([of[p] for p in shared], axis=1) for of in (ours, theirs))
            pairs[name] = one, other
    return pairs, left_out


def _differences(row: Row, study: Study | None, pairs: Mapping[str, Pair]) -> Iterator[Compared]:
    """Yield the difference on each benchmark, and on average where there are several."""
    rng, (decoding, size, method) = np.random.default_rng(SEED), row
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
        yield Compared(
            decoding=decoding,
            size=size,
            method=method,
            title=study.title(method) if study else "",
            benchmark=name,
            problems=sum(pairs[one][0].shape[1] for one in of),
            first=values[0],
            second=values[1],
            difference=Interval(*(100 * x for x in (found.value, found.low, found.high))),
            p_value=found.p_value,
            detectable=100 * found.detectable,
        )


def _used(study: Study) -> dict[str, Any]:
    """Return the settings of a study without its name and what it does not run; methods are resolved."""
    without = {"name", "all_methods", "engine"}
    raw = study.model_dump(mode="json", exclude=without)
    for section, listed in NAMED.items():
        used = {*getattr(study.run, listed)}
        used |= {*study.run.benchmarks} if section == "benchmarks" else set()
        raw[section] = {name: one for name, one in raw[section].items() if name in used}
    raw["methods"] = {}
    for name in study.run.methods:
        method = vars(study.method(name))
        own = study.training_of(name).model_dump(mode="json")
        other = {key: value for key, value in own.items() if value != raw["training"][key]}
        raw["methods"][name] = {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in (method | ({"training": other} if other else {})).items()
        }
    return raw


def _warnings(first: Side, second: Side) -> Iterator[str]:
    for key, one in first.made_with.items():
        if one != (other := second.made_with.get(key, one)):
            yield f"made with different {key}: A {plain(str(one))}; B {plain(str(other))}"
    trainings = [
        len(cell)
        for side in (first, second)
        for verdicts in side.verdicts.values()
        for by_problem in verdicts.values()
        for cell in by_problem.values()
    ]
    if 1 in trainings:
        yield "one training seed: differences are between checkpoints, not between methods or settings"


def _summary(rows: Sequence[Compared]) -> list[str]:
    """Return the result in words."""
    if not rows:
        return ["A and B have no size, method, decoding and benchmark in common."]
    differ = [row for row in rows if row.p_holm < SIGNIFICANT]
    lines = [
        f"B minus A: {len(differ)} of {len(rows)} accuracies differ (p < {SIGNIFICANT}, Holm's "
        "adjustment over all of them)."
    ]
    for row in [row for row in differ if row.benchmark == AVERAGE] or differ:
        place = ", ".join(
            filter(None, (f"{row.size} {row.title}".strip(), row.decoding, row.benchmark))
        )
        lines.append(f"{place}: {_points(row.difference)} points, p = {row.p_holm:.4f} (Holm)")
    return lines


def _points(value: Interval) -> str:
    return f"{value.value:+.2f} [{value.low:+.1f}, {value.high:+.1f}]"


def print_comparison(found: Comparison, console: Console) -> None:
    """Print the result in words, then warnings, a table per decoding and the settings that differ."""
    lines = [f"A = {found.first}", f"B = {found.second}", *found.summary]
    for line in [*lines, *(f"warning: {line}" for line in found.warnings)]:
        console.print(Text(visible(line)))
    for decoding, rows in groupby(found.differences, lambda row: row.decoding):
        table = Table(box=None, title=Text(visible(f"{decoding}: accuracy in %".lstrip(": "))))
        for heading in ("Row", "Benchmark"):
            table.add_column(heading, overflow="fold")
        for heading in ("A", "B", "B - A [95 %]", "p (Holm)"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in rows:
            texts = (Text(plain(text)) for text in (f"{row.size} {row.title}", row.benchmark))
            values = (f"{row.first.value:.2f}", f"{row.second.value:.2f}")
            table.add_row(*texts, *values, _points(row.difference), f"{row.p_holm:.4f}")
        console.print(table)
    if found.settings:
        console.print(Text(f"Settings that differ: {len(found.settings)}"))
    for place, *both in found.settings:
        one, other = ("not set" if x is None else json.dumps(x, default=str) for x in both)
        console.print(Text(f"  {plain(place)}: A {plain(one)}, B {plain(other)}"))
