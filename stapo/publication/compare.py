"""Opening of finished results folders for a comparison, and its output. Folders are untrusted."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from stapo import paths
from stapo.analysis.cells import SAME_EVERYWHERE, SAME_PACKAGES, chosen_cells, missing_samples
from stapo.analysis.compare_studies import (
    Compared,
    Finished,
    StudyComparison,
    compare_finished,
    summary,
)
from stapo.analysis.formats import terminal_table
from stapo.analysis.table import Column
from stapo.evaluation.statistics import Interval
from stapo.publication.folder import Results
from stapo.publication.verify import UNREADABLE, opened
from stapo.records.scores import read_score_file
from stapo.study import Checkpoint, StudyError
from stapo.text import plain, visible

SHOWN_SETTINGS = 60
"""Settings that are printed; CSV and JSON are for more."""


def compare_folders(folders: Sequence[Path]) -> list[StudyComparison]:
    """Return the comparison of each folder with the first one.

    Raises:
        StudyError: a folder cannot be read; with the errors of all folders.
    """
    if not 2 <= len(folders) <= len(ascii_uppercase):
        raise StudyError(
            [
                "expected two or more results folders, for example: stapo compare results/smoke other/smoke"
            ]
        )
    errors: list[str] = []
    found: list[Finished] = []
    with ExitStack() as stack:
        for label, folder in zip(ascii_uppercase, folders, strict=False):
            try:
                results, refused = stack.enter_context(opened(folder))
            except StudyError as error:
                errors += error.errors
                continue
            if refused:
                errors += [f"{folder}: {line}" for line in refused]
                continue
            if results.is_summary:
                errors.append(f"{folder}: without its raw data; the scores are needed to compare")
                continue
            try:
                found.append(_finished(label, folder, results))
            except StudyError as error:
                errors += [f"{folder}: {line}" for line in error.errors]
    if errors:
        raise StudyError([visible(line) for line in errors])
    return [compare_finished(found[0], other) for other in found[1:]]


def _finished(label: str, folder: Path, results: Results) -> Finished:
    """Return what is compared of a folder that may be read.

    Raises:
        StudyError: scores are missing, damaged or misplaced; one line for each file.
    """
    study, errors = results.study, []
    cells: dict[tuple[str, str, str, str], Any] = {}
    made_with: dict[str, set[str]] = {}
    for decoding in study.run.decodings:
        tables: dict[tuple[Checkpoint, str], pa.Table] = {}
        for checkpoint, benchmark in study.table_cells(decoding):
            try:
                tables[checkpoint, benchmark] = _scores(
                    results, checkpoint, decoding, benchmark, made_with
                )
            except FileNotFoundError:
                errors.append(f"scores/{checkpoint}/{decoding}/{benchmark}.parquet: missing")
            except UNREADABLE as error:
                errors.append(f"scores/{checkpoint}/{decoding}/{benchmark}.parquet: {error}")
        errors += _uneven(tables, decoding)
        if not errors:
            _, here = chosen_cells(study, tables)
            cells |= {(decoding, *place): cell for place, cell in here.items()}
    if errors:
        raise StudyError(errors)
    problems = {name: _problems(results, name) for name in study.run.benchmarks}
    for name, digests in problems.items():
        rows = cells[study.run.decodings[0], study.run.sizes[0], "base", name].correct.shape[1]
        problems[name] = digests if digests and len(digests) == rows else None
    known = {key: frozenset(values) for key, values in made_with.items()}
    return Finished(label, str(folder), study, cells, problems, known)


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
    packages = made.get("packages", {})
    values = {key: made.get(key) for key in (*SAME_EVERYWHERE, "commit")}
    values |= {key: packages.get(key) for key in SAME_PACKAGES}
    for what, found in values.items():
        made_with.setdefault(what, set()).add(plain(str(found)))
    return table


def _uneven(tables: dict[tuple[Checkpoint, str], pa.Table], decoding: str) -> Iterator[str]:
    rows: dict[str, int] = {}
    for (checkpoint, benchmark), table in tables.items():
        if table.num_rows != rows.setdefault(benchmark, table.num_rows):
            yield (
                f"scores/{checkpoint}/{decoding}/{benchmark}.parquet: {table.num_rows} rows, others have "
                f"{rows[benchmark]}"
            )


def _problems(results: Results, benchmark: str) -> list[str] | None:
    """Return a digest of question and answer of each problem; None without responses that say them."""
    size, decoding = results.study.run.sizes[0], results.study.run.decodings[0]
    try:
        answered = results.responses(Checkpoint(size), decoding, benchmark)
    except UNREADABLE:
        return None
    asked = (json.dumps([one.question, one.gold]).encode() for one in answered)
    return [hashlib.sha256(text).hexdigest() for text in asked]


def _columns(found: StudyComparison) -> list[Column[Compared]]:
    a, b = found.first.label, found.second.label
    columns: list[Column[Compared]] = [
        Column("Size", lambda row: row.size, text=True),
        Column("Method", lambda row: row.title, text=True),
        Column("Benchmark", lambda row: row.benchmark, text=True),
        Column(a, lambda row: row.first.value, ".2f"),
        Column(b, lambda row: row.second.value, ".2f"),
        Column(f"{b} - {a}", lambda row: _difference(row.difference)),
        Column("p (Holm)", lambda row: row.p_holm, ".4f"),
    ]
    if {row.pairing for row in found.rows} != {"paired"}:
        columns.append(Column("Pairing", lambda row: row.pairing, text=True))
    return columns


def _difference(value: Interval) -> str:
    return f"{value.value:+.2f} [{value.low:+.1f}, {value.high:+.1f}]"


def print_comparison(found: StudyComparison, console: Console) -> None:
    """Print the result in words, then warnings, a table per decoding and the settings that differ."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(visible(line), style=style))

    for one in (found.first, found.second):
        say(f"{one.label} = {one.folder} ({one.study.name})")
    for line in summary(found):
        say(line, "bold")
    for line in found.warnings:
        say(f"warning: {line}", "yellow")
    for line in found.missing:
        say(line)
    for decoding, rows in groupby(found.rows, lambda row: row.decoding):
        groups = [list(group) for _, group in groupby(rows, lambda row: (row.size, row.method))]
        titles = [one.study.decodings[decoding].title for one in (found.first, found.second)]
        said = " / ".join(dict.fromkeys(titles))
        title = Text(visible(f"{said}: accuracy in %, differences with 95 % intervals"))
        columns = _columns(found)
        console.print(terminal_table(columns, groups, title), crop=False)
    if found.settings:
        say("Settings that differ:")
    a, b = found.first.label, found.second.label
    for place, one, other in found.settings[:SHOWN_SETTINGS]:
        say(f"  {plain(place)}: {a} {_setting(one)}, {b} {_setting(other)}")
    if len(found.settings) > SHOWN_SETTINGS:
        say(f"  and {len(found.settings) - SHOWN_SETTINGS} more (--json shows all)")


def _setting(value: Any) -> str:
    return "not set" if value is None else plain(json.dumps(value, ensure_ascii=False, default=str))


def comparison_csv(comparisons: Sequence[StudyComparison]) -> str:
    """Return the differences as CSV, one line each."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    bounds = [
        f"{of}{part}" for of in ("first", "second", "difference") for part in ("", "_low", "_high")
    ]
    names = ("decoding", "size", "method", "benchmark")
    writer.writerow(
        ["first_folder", "second_folder", *names, *bounds, "pairing", "p_value", "p_holm"]
    )
    for found in comparisons:
        for row in found.rows:
            numbers = (row.first, row.second, row.difference)
            values = [f"{x:.6f}" for one in numbers for x in (one.value, one.low, one.high)]
            tests = [row.pairing, f"{row.p_value:.6f}", f"{row.p_holm:.6f}"]
            place = [getattr(row, name) for name in names]
            writer.writerow([found.first.folder, found.second.folder, *place, *values, *tests])
    return stream.getvalue()


def comparison_json(comparisons: Sequence[StudyComparison]) -> str:
    """Return everything as JSON: words, warnings, what is missing, settings and differences."""
    content = [
        {
            "first": found.first.folder,
            "second": found.second.folder,
            "summary": summary(found),
            "warnings": found.warnings,
            "missing": found.missing,
            "settings": [
                {"setting": place, "first": one, "second": other}
                for place, one, other in found.settings
            ],
            "differences": [asdict(row) for row in found.rows],
        }
        for found in comparisons
    ]
    return json.dumps(content, indent=1, default=str)
