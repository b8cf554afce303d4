"""Comparison of finished results folders: which settings differ, and by how much the accuracies do.

Folders are untrusted and opened as `verify` opens them. Differences are paired by problem, so only benchmarks
are compared of which both studies asked the same problems.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.analysis.cells import (
    SAME_EVERYWHERE,
    SAME_PACKAGES,
    Cell,
    Scores,
    chosen_cells,
    read_tables,
)
from stapo.analysis.comparison import resampled
from stapo.canonical import fingerprint, leaves
from stapo.evaluation.statistics import Interval, holm, paired_difference
from stapo.publication.folder import Results
from stapo.publication.verify import UNREADABLE, opened
from stapo.study import Study, StudyError
from stapo.text import plain, visible

AVERAGE = "Avg"
SEED = 0
SIGNIFICANT = 0.05
NAMED = {"models": "sizes", "decodings": "decodings", "benchmarks": "benchmarks"}
"""Section of a study file -> list in `run` that says which of its entries are used."""

Place = tuple[str, str, str, str]
"""Decoding, size, method or `base`, benchmark."""


@dataclass(frozen=True)
class Finished:
    """What is compared of one finished study."""

    folder: str
    study: Study
    cells: Mapping[Place, Cell]
    problems: Mapping[str, Sequence[str]]
    """Benchmark -> digest of each problem's question and answer, in order."""
    made_with: Mapping[str, Any]
    """What its scores were made with, such as `torch` -> version."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One accuracy of two studies, in percent, and its difference in points."""

    decoding: str
    size: str
    method: str
    title: str
    benchmark: str
    """A benchmark, or the average over those that are compared."""
    first: Interval
    second: Interval
    difference: Interval
    """Second minus first."""
    p_value: float
    p_holm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class StudyComparison:
    """Comparison of a study B with a first one, A; as JSON, what `stapo compare --json` prints."""

    first: str
    second: str
    """Folders of A and B."""
    summary: list[str]
    """The result in words."""
    warnings: list[str]
    settings: list[tuple[str, Any, Any]]
    """Place and both values of each setting that differs; None where a study does not have it."""
    differences: list[Compared]


def compare_folders(folders: Sequence[Path]) -> list[StudyComparison]:
    """Return the comparison of each folder with the first one; resamples have a fixed seed.

    Raises:
        StudyError: a folder cannot be read; with the errors of all folders.
    """
    if len(folders) < 2:
        example = "stapo compare results/smoke other/smoke"
        raise StudyError([f"expected two or more results folders, for example: {example}"])
    errors: list[str] = []
    found: list[Finished] = []
    with ExitStack() as stack:
        for folder in folders:
            try:
                results, refused = stack.enter_context(opened(folder))
                if results.is_summary and not refused:
                    refused = ["without its raw data; the scores are needed to compare"]
                if not refused:
                    found.append(_finished(folder, results))
                errors += [f"{folder}: {line}" for line in refused]
            except StudyError as error:
                errors += error.errors
            except UNREADABLE as error:
                errors += [f"{folder}: {line}" for line in str(error).splitlines()]
    if errors:
        raise StudyError([visible(line) for line in errors])
    return [_compare(found[0], other) for other in found[1:]]


def _finished(folder: Path, results: Results) -> Finished:
    """Return what is compared of a folder that may be read.

    Raises:
        ValueError: scores are missing, damaged or misplaced; other errors of `UNREADABLE` too.
    """
    study = results.study
    cells: dict[Place, Cell] = {}
    made_with: dict[str, Any] = {}
    problems: dict[str, list[str]] = {}
    for decoding in study.run.decodings:
        wanted = list(study.table_cells(decoding))
        tables, made = read_tables(study, decoding, wanted, results.root)
        for checkpoint, benchmark in wanted:
            answered = results.responses(checkpoint, decoding, benchmark)
            digests = [fingerprint([one.question, one.gold]) for one in answered]
            if problems.setdefault(benchmark, digests) != digests:
                raise ValueError(f"{benchmark}: checkpoints answered different problems")
            if (rows := tables[checkpoint, benchmark].num_rows) % len(digests):
                raise ValueError(f"{benchmark}: {rows} rows for {len(digests)} problems")
        for place, cell in chosen_cells(study, tables).items():
            cells[decoding, *place] = cell
        made_with = {**made, **made.get("packages", {})}
    versions = {key: made_with.get(key) for key in (*SAME_EVERYWHERE, *SAME_PACKAGES, "commit")}
    return Finished(str(folder), study, cells, problems, versions)


def _compare(first: Finished, second: Finished) -> StudyComparison:
    rows = list(_rows(first, second))
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    before, after = (leaves(_used(found.study)) for found in (first, second))
    pairs = [(place, before.get(place), after.get(place)) for place in {**before, **after}]
    return StudyComparison(
        first=first.folder,
        second=second.folder,
        summary=_summary(rows),
        warnings=list(_warnings(first, second)),
        settings=[(place, one, other) for place, one, other in pairs if one != other],
        differences=rows,
    )


def _rows(first: Finished, second: Finished) -> Iterator[Compared]:
    """Yield each accuracy that is compared, and the average over the benchmarks.

    Both studies are rows of one table, whose sizes are A and B, so that it resamples the same problems.
    """
    rng, study = np.random.default_rng(SEED), first.study
    asked = study.run.benchmarks
    shared = [name for name in asked if first.problems[name] == second.problems.get(name)]
    averages = {name: [name] for name in shared} | ({AVERAGE: shared} if len(shared) > 1 else {})
    there = {place[:3] for place in second.cells if shared}
    for row in dict.fromkeys(place[:3] for place in first.cells if place[:3] in there):
        cells = {
            (label, "base", name): found.cells[*row, name]
            for label, found in (("A", first), ("B", second))
            for name in shared
        }
        run = study.run.model_copy(
            update={"sizes": ["A", "B"], "methods": [], "benchmarks": shared}
        )
        both = study.model_copy(update={"run": run})
        intervals, draws = resampled(both, Scores(cells=cells), averages)
        one, other = ("A", "base"), ("B", "base")
        for name, part in averages.items():
            ours, theirs = ([cells[*at, b].correct for b in part] for at in (one, other))
            gaps = (draws[other][name] - draws[one][name]) / 100
            found = paired_difference(theirs, ours, gaps, rng)
            decoding, size, method = row
            yield Compared(
                decoding=decoding,
                size=size,
                method=method,
                title=study.title(method),
                benchmark=name,
                first=intervals[one][name],
                second=intervals[other][name],
                difference=Interval(*(100 * x for x in (found.value, found.low, found.high))),
                p_value=found.p_value,
            )


def _used(study: Study) -> dict[str, Any]:
    """Return the settings of a study without its name and what it does not run; methods are resolved."""
    without = {"name", "all_methods", "engine"}
    raw = study.model_dump(mode="json", exclude=without)
    for section, listed in NAMED.items():
        used = {*getattr(study.run, listed)}
        used |= {*study.evaluated()} if section == "benchmarks" else set()
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


def _warnings(first: Finished, second: Finished) -> Iterator[str]:
    for key, one in first.made_with.items():
        if one != (other := second.made_with[key]):
            yield f"made with different {key}: A {plain(str(one))}; B {plain(str(other))}"
    for name in first.study.run.benchmarks:
        if first.problems[name] != second.problems.get(name, first.problems[name]):
            yield f"{name}: not compared, since the problems are not the same"
    if 1 in (len(first.study.run.seeds), len(second.study.run.seeds)):
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
        place = f"{row.size} {row.title}, {row.decoding}, {row.benchmark}"
        lines.append(f"{place}: {_points(row.difference)} points, p = {row.p_holm:.4f} (Holm)")
    return lines


def _points(value: Interval) -> str:
    return f"{value.value:+.2f} [{value.low:+.1f}, {value.high:+.1f}]"


def print_comparison(found: StudyComparison, console: Console) -> None:
    """Print the result in words, then warnings, a table per decoding and the settings that differ."""
    lines = [f"A = {found.first}", f"B = {found.second}", *found.summary]
    for line in [*lines, *(f"warning: {line}" for line in found.warnings)]:
        console.print(Text(visible(line)))
    for decoding, rows in groupby(found.differences, lambda row: row.decoding):
        table = Table(box=None, title=Text(f"{visible(decoding)}: accuracy in %"))
        for heading in ("Size", "Method", "Benchmark"):
            table.add_column(heading, overflow="fold")
        for heading in ("A", "B", "B - A [95 %]", "p (Holm)"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in rows:
            texts = (Text(visible(text)) for text in (row.size, row.title, row.benchmark))
            values = (f"{row.first.value:.2f}", f"{row.second.value:.2f}")
            table.add_row(*texts, *values, _points(row.difference), f"{row.p_holm:.4f}")
        console.print(table)
    console.print(Text(f"Settings that differ: {len(found.settings)}"))
    for place, *both in found.settings:
        one, other = ("not set" if x is None else json.dumps(x, default=str) for x in both)
        console.print(Text(f"  {plain(place)}: A {plain(one)}, B {plain(other)}"))
