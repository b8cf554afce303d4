"""Comparison of finished results folders: which settings differ, and by how much the accuracies do.

Folders are untrusted and opened as `verify` opens them. Differences of a benchmark are paired by problem
where both studies asked the same problems; otherwise problems are resampled in each study by itself.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo import paths
from stapo.analysis.cells import SAME_EVERYWHERE, SAME_PACKAGES, Cell, chosen_cells, missing_samples
from stapo.canonical import leaves
from stapo.evaluation.statistics import (
    Array,
    Interval,
    average_at_n,
    bootstrap_means,
    bootstrap_p,
    holm,
    interval,
    paired_difference,
    percent_interval,
    problem_counts,
    seed_choices,
)
from stapo.publication.folder import Results
from stapo.publication.verify import UNREADABLE, opened
from stapo.records.scores import read_score_file
from stapo.study import Checkpoint, Study, StudyError
from stapo.text import plain, visible

AVERAGE = "Avg"
SEED = 0
SIGNIFICANT = 0.05
SHOWN_SETTINGS = 60
"""Settings that are printed; JSON has all."""
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
    problems: Mapping[str, Sequence[str] | None]
    """Benchmark -> digest of each problem's question and answer, in order; None where no responses are."""
    made_with: Mapping[str, set[str]]
    """What its scores were made with, such as `torch` -> versions."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One accuracy of two studies, in percent, and its difference in points."""

    decoding: str
    size: str
    method: str
    title: str
    benchmark: str
    """A benchmark, or the average over those that both studies have."""
    first: Interval
    second: Interval
    difference: Interval
    """Second minus first."""
    pairing: str
    """`paired`, `unpaired` or, of an average, `partly paired`."""
    p_value: float
    p_holm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class StudyComparison:
    """Comparison of a study B with a first one, A; as JSON, what `stapo compare --json` prints."""

    first: str
    """Folder of A."""
    second: str
    """Folder of B."""
    summary: list[str]
    """The result in words."""
    warnings: list[str]
    missing: list[str]
    """What only one of the studies has."""
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
        StudyError: scores are missing, damaged or misplaced; one line for each file.
    """
    study, errors = results.study, []
    cells: dict[Place, Cell] = {}
    made_with: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for decoding in study.run.decodings:
        tables: dict[tuple[Checkpoint, str], pa.Table] = {}
        for checkpoint, benchmark in study.table_cells(decoding):
            try:
                table = _scores(results, checkpoint, decoding, benchmark, made_with)
                if table.num_rows != rows.setdefault(benchmark, table.num_rows):
                    raise ValueError(f"{table.num_rows} rows, others have {rows[benchmark]}")
                tables[checkpoint, benchmark] = table
            except FileNotFoundError:
                errors.append(f"scores/{checkpoint}/{decoding}/{benchmark}.parquet: missing")
            except UNREADABLE as error:
                errors.append(f"scores/{checkpoint}/{decoding}/{benchmark}.parquet: {error}")
        if not errors:
            _, here = chosen_cells(study, tables)
            cells |= {(decoding, *place): cell for place, cell in here.items()}
    if errors:
        raise StudyError([f"{folder}: {line}" for line in errors])
    problems = {name: _problems(results, name) for name in study.run.benchmarks}
    return Finished(str(folder), study, cells, problems, made_with)


def _scores(
    results: Results,
    checkpoint: Checkpoint,
    decoding: str,
    benchmark: str,
    made_with: dict[str, set[str]],
) -> pa.Table:
    """Return a score file that is at its place, and note what it was made with."""
    at = {"checkpoint": str(checkpoint), "decoding": decoding, "benchmark": benchmark}
    path = paths.SCORES.format(study=results.study.name, **at)
    table, identity = read_score_file(results.root / path)
    about: dict[str, Any] = dict(identity)
    for key, value in at.items():
        if about.get(key) != value:
            raise ValueError(f"is of {key} {plain(str(about.get(key)))}")
    if fault := missing_samples(table, results.samples(benchmark)):
        raise ValueError(fault)
    made = {**about.get("provenance", {}), "engine": about.get("engine")}
    values = {key: made.get(key) for key in (*SAME_EVERYWHERE, "commit")}
    values |= {key: made.get("packages", {}).get(key) for key in SAME_PACKAGES}
    for what, found in values.items():
        made_with.setdefault(what, set()).add(plain(str(found)))
    return table


def _problems(results: Results, benchmark: str) -> list[str] | None:
    """Return a digest of question and answer of each problem; None without responses that say them."""
    size, decoding = results.study.run.sizes[0], results.study.run.decodings[0]
    try:
        answered = results.responses(Checkpoint(size), decoding, benchmark)
    except UNREADABLE:
        return None
    asked = (json.dumps([one.question, one.gold]).encode() for one in answered)
    return [hashlib.sha256(text).hexdigest() for text in asked]


def _compare(first: Finished, second: Finished) -> StudyComparison:
    rows = list(_rows(first, second))
    adjusted = holm([row.p_value for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return StudyComparison(
        first=first.folder,
        second=second.folder,
        summary=_summary(rows),
        warnings=list(_warnings(first, second)),
        missing=list(_missing(first, second)),
        settings=differing_settings(first.study, second.study),
        differences=rows,
    )


def _rows(first: Finished, second: Finished) -> Iterator[Compared]:
    """Yield each accuracy that both studies have, and the average over the benchmarks of both."""
    rng = np.random.default_rng(SEED)
    shared = [b for b in first.study.run.benchmarks if b in second.study.run.benchmarks]
    orders = {b: _same_order(first.problems.get(b), second.problems.get(b)) for b in shared}
    there = {place[:3] for place in second.cells}
    for row in dict.fromkeys(place[:3] for place in first.cells if place[:3] in there):
        cells: dict[str, tuple[Array, Array]] = {}
        for name, order in orders.items():
            ours, theirs = (found.cells[*row, name].correct for found in (first, second))
            cells[name] = (ours, theirs if order is None else theirs[:, order])
        draws = {name: _draws(*pair, orders[name] is not None, rng) for name, pair in cells.items()}
        averages = {AVERAGE: shared} if len(shared) > 1 else {}
        for name, part in {**{b: [b] for b in shared}, **averages}.items():
            pairs, drawn = [cells[b] for b in part], np.mean([draws[b] for b in part], axis=0)
            kinds = {"unpaired" if orders[b] is None else "paired" for b in part}
            one, other = (float(np.mean([average_at_n(pair[i]) for pair in pairs])) for i in (0, 1))
            found = interval(other - one, drawn[1] - drawn[0])
            p_value = bootstrap_p(drawn[1] - drawn[0])
            if kinds == {"paired"}:
                firsts, seconds = ([pair[i] for pair in pairs] for i in (0, 1))
                p_value = paired_difference(seconds, firsts, drawn[1] - drawn[0], rng).p_value
            decoding, size, method = row
            yield Compared(
                decoding=decoding,
                size=size,
                method=method,
                title=first.study.title(method),
                benchmark=name,
                first=percent_interval(100 * one, 100 * drawn[0]),
                second=percent_interval(100 * other, 100 * drawn[1]),
                difference=Interval(*(100 * x for x in (found.value, found.low, found.high))),
                pairing=kinds.pop() if len(kinds) == 1 else "partly paired",
                p_value=p_value,
            )


def _same_order(one: Sequence[str] | None, other: Sequence[str] | None) -> list[int] | None:
    """Return where the other study has each problem of one; None if their problems are not the same."""
    if one is None or other is None or len({*one}) < len(one) or sorted(one) != sorted(other):
        return None
    places = {digest: i for i, digest in enumerate(other)}
    return [places[digest] for digest in one]


def _draws(first: Array, second: Array, paired: bool, rng: np.random.Generator) -> Array:
    """Return (2, resamples) means of two cells (S, P, N), of the same resampled problems if paired."""
    counts = problem_counts(first.shape[1], rng)
    others = counts if paired else problem_counts(second.shape[1], rng)
    return np.stack(
        [
            bootstrap_means(cell, drawn, seed_choices(len(cell), rng))
            for cell, drawn in ((first, counts), (second, others))
        ]
    )


def differing_settings(first: Study, second: Study) -> list[tuple[str, Any, Any]]:
    """Return place and both values of each setting that differs and that one of the studies uses."""
    found = [leaves(_used(study)) for study in (first, second)]
    places = dict.fromkeys([*found[0], *found[1]])
    pairs = [(place, found[0].get(place), found[1].get(place)) for place in places]
    return [(place, one, other) for place, one, other in pairs if one != other]


def _used(study: Study) -> dict[str, Any]:
    """Return the settings of a study without its name and what it does not run; methods are resolved."""
    without = {"name", "all_methods", "engine", "places"}
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


def _missing(first: Finished, second: Finished) -> Iterator[str]:
    """Yield what only one study has: sizes, methods, decodings, benchmarks, training seeds."""
    for kind in ("sizes", "methods", "decodings", "benchmarks", "seeds"):
        lists = [getattr(found.study.run, kind) for found in (first, second)]
        for label, mine, theirs in (("A", *lists), ("B", *reversed(lists))):
            if only := [str(name) for name in mine if name not in theirs]:
                yield f"only in {label}: {kind} {', '.join(only)}"


def _warnings(first: Finished, second: Finished) -> Iterator[str]:
    for key in sorted(first.made_with.keys() | second.made_with.keys()):
        one, other = (found.made_with.get(key, set()) for found in (first, second))
        if one != other:
            shown = [", ".join(sorted(values)) or "unknown" for values in (one, other)]
            yield f"made with different {key}: A {shown[0]}; B {shown[1]}"
    for name in first.study.run.benchmarks:
        if name not in second.study.run.benchmarks:
            continue
        if None in (first.problems.get(name), second.problems.get(name)):
            yield f"{name}: unpaired, since a folder has no responses that say what its problems are"
        elif _same_order(first.problems[name], second.problems[name]) is None:
            yield f"{name}: unpaired, since the problems are not the same"
    if 1 in (len(first.study.run.seeds), len(second.study.run.seeds)):
        yield "one training seed: differences are between checkpoints, not between methods or settings"


def _summary(rows: Sequence[Compared]) -> list[str]:
    """Return the result in words."""
    if not rows:
        return ["A and B have no size, method, decoding and benchmark in common."]
    differ = [row for row in rows if row.p_holm < SIGNIFICANT]
    kinds = " and ".join(dict.fromkeys(row.pairing for row in rows))
    lines = [
        f"B minus A: {len(differ)} of {len(rows)} accuracies differ (p < {SIGNIFICANT}, Holm's "
        f"adjustment over all of them; {kinds})."
    ]
    if not any(any(vars(row.difference).values()) for row in rows):
        lines.append("All accuracies are the same.")
    for row in [row for row in differ if row.benchmark == AVERAGE] or differ:
        place = f"{row.size} {row.title}, {row.decoding}, {row.benchmark}"
        lines.append(f"{place}: {_points(row.difference)} points, p = {row.p_holm:.4f} (Holm)")
    return lines


def _points(value: Interval) -> str:
    return f"{value.value:+.2f} [{value.low:+.1f}, {value.high:+.1f}]"


def print_comparison(found: StudyComparison, console: Console) -> None:
    """Print the result in words, then warnings, a table per decoding and the settings that differ."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(visible(line), style=style))

    say(f"A = {found.first}")
    say(f"B = {found.second}")
    for line in found.summary:
        say(line, "bold")
    for line in (*(f"warning: {line}" for line in found.warnings), *found.missing):
        say(line)
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
    say(f"Settings that differ: {len(found.settings)}")
    for place, *both in found.settings[:SHOWN_SETTINGS]:
        one, other = ("not set" if x is None else plain(json.dumps(x, default=str)) for x in both)
        say(f"  {plain(place)}: A {one}, B {other}")
    if len(found.settings) > SHOWN_SETTINGS:
        say(f"  and {len(found.settings) - SHOWN_SETTINGS} more (--json shows all)")
