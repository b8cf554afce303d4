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

from stapo.analysis.cells import SAME_EVERYWHERE, SAME_PACKAGES, Cell, chosen_cells, read_tables
from stapo.canonical import fingerprint, leaves
from stapo.evaluation.statistics import (
    Interval,
    average_at_n,
    bootstrap_means,
    holm,
    paired_difference,
    percent_interval,
    problem_counts,
    seed_choices,
)
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
                if refused:
                    raise StudyError([f"{folder}: {line}" for line in refused])
                found.append(_finished(folder, results))
            except StudyError as error:
                errors += error.errors
    if errors:
        raise StudyError([visible(line) for line in errors])
    return [_compare(found[0], other) for other in found[1:]]


def _finished(folder: Path, results: Results) -> Finished:
    """Return what is compared of a folder that may be read.

    Raises:
        StudyError: scores are missing, damaged or misplaced.
    """
    study, errors = results.study, []
    cells: dict[Place, Cell] = {}
    made_with: dict[str, Any] = {}
    problems: dict[str, list[str]] = {}
    for decoding in study.run.decodings:
        wanted = list(study.table_cells(decoding))
        try:
            tables, made = read_tables(study, decoding, wanted, results.root)
            for checkpoint, benchmark in wanted:
                answered = results.responses(checkpoint, decoding, benchmark)
                digests = [fingerprint([one.question, one.gold]) for one in answered]
                if problems.setdefault(benchmark, digests) != digests:
                    raise ValueError(f"{benchmark}: checkpoints answered different problems")
                if (rows := tables[checkpoint, benchmark].num_rows) % len(digests):
                    raise ValueError(f"{benchmark}: {rows} rows for {len(digests)} problems")
        except UNREADABLE as error:
            errors += str(error).splitlines()
            continue
        cells |= {
            (decoding, *place): cell for place, cell in chosen_cells(study, tables)[1].items()
        }
        made_with = {**made, **made.get("packages", {})}
    if errors:
        raise StudyError([f"{folder}: {line}" for line in errors])
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
    """Yield each accuracy that is compared, and the average over the benchmarks."""
    rng = np.random.default_rng(SEED)
    shared = [name for name in first.study.run.benchmarks if _order(first, second, name)]
    there = {place[:3] for place in second.cells}
    for decoding, size, method in dict.fromkeys(place[:3] for place in first.cells):
        if (decoding, size, method) not in there:
            continue
        pairs, draws = {}, {}
        for name in shared:
            place = (decoding, size, method, name)
            ours, theirs = first.cells[place].correct, second.cells[place].correct
            pairs[name] = (ours, theirs[:, _order(first, second, name)])
            counts = problem_counts(ours.shape[1], rng)
            draws[name] = np.stack(
                [
                    bootstrap_means(cell, counts, seed_choices(len(cell), rng))
                    for cell in pairs[name]
                ]
            )
        averages = {AVERAGE: shared} if len(shared) > 1 else {}
        for name, part in {**{b: [b] for b in shared}, **averages}.items():
            firsts, seconds = ([pairs[b][i] for b in part] for i in (0, 1))
            one, other = (float(np.mean([*map(average_at_n, x)])) for x in (firsts, seconds))
            drawn = np.mean([draws[b] for b in part], axis=0)
            found = paired_difference(seconds, firsts, drawn[1] - drawn[0], rng)
            yield Compared(
                decoding=decoding,
                size=size,
                method=method,
                title=first.study.title(method),
                benchmark=name,
                first=percent_interval(100 * one, 100 * drawn[0]),
                second=percent_interval(100 * other, 100 * drawn[1]),
                difference=Interval(*(100 * x for x in (found.value, found.low, found.high))),
                p_value=found.p_value,
            )


def _order(first: Finished, second: Finished, benchmark: str) -> list[int]:
    """Return where the second study has each problem of the first; empty if their problems differ."""
    one, other = (found.problems.get(benchmark, []) for found in (first, second))
    if len({*one}) < len(one) or sorted(one) != sorted(other):
        return []
    places = {digest: i for i, digest in enumerate(other)}
    return [places[digest] for digest in one]


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
        plain_values = {k: dict(v) if isinstance(v, Mapping) else v for k, v in method.items()}
        own = study.training_of(name).model_dump(mode="json")
        other = {k: v for k, v in own.items() if v != raw["training"][k]}
        raw["methods"][name] = plain_values | ({"training": other} if other else {})
    return raw


def _warnings(first: Finished, second: Finished) -> Iterator[str]:
    for key, one in first.made_with.items():
        if one != (other := second.made_with[key]):
            yield f"made with different {key}: A {plain(str(one))}; B {plain(str(other))}"
    for name in first.study.run.benchmarks:
        if name in second.study.run.benchmarks and not _order(first, second, name):
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
