"""A results folder that is being checked: its study, its files, and what may be read of each.

Nothing is read before `admit` has found it regular and of a size that the study allows. After that the
functions that made the folder may read it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from stapo.provenance import SUMS, is_hidden
from stapo.publication import untrusted
from stapo.publication.manifest import WEIGHTS, Layout
from stapo.records.responses import FIELDS, AnsweredProblem, answered_problem
from stapo.records.scores import SCHEMA
from stapo.study import Checkpoint, Study, StudyError, TrainingRun, parse_study
from stapo.tasks import benchmark_definitions

FILE_BYTES = 64 * 2**20
"""Of a file that has no limit of its own; the largest is the report with its figures."""
RECORD_BYTES = 2**16
"""Of one line of metrics."""
PROMPT_BYTES = 2**20
MAX_PROMPTS = 10**6
MAX_STEPS = 10**6
TOKEN_BYTES = 16
"""Of JSON, on average over a response; a letter outside ASCII takes six."""
LINE_BYTES = 2**25
"""Of all responses to a problem."""
CELL_BYTES = 2**28
"""Of all responses to a benchmark."""
MAX_RESPONSES = 200_000
ROW_BYTES = 4096
"""Of a row of scores, on average; its longest column is the boxed answer."""
SCORE_BYTES = 2**25
READ = (
    "provenance.json", "source.json", "config.json", "overlap.json", "prompts.json", "base.json",
    "verifier.json",
)  # fmt: skip
"""The JSON files that are read; others are only checksummed."""


@dataclass(frozen=True)
class Results:
    """A results folder whose files may be read."""

    study: Study
    root: Path
    """Where `results/STUDY` leads to the folder."""
    folder: Path
    layout: Callable[[], Layout]
    files: Mapping[str, Path]
    """By their paths from the folder; hidden ones and the checksums apart."""
    digest: Callable[[Path], str]

    @cached_property
    def runs(self) -> dict[TrainingRun, dict[str, Any]]:
        """What each training left of itself."""
        return {
            run: untrusted.read_json(self.folder / f"runs/{run}/provenance.json")
            for run in self.study.runs()
        }

    def metrics(self, run: TrainingRun) -> Iterator[dict[str, Any]]:
        """Yield what a training recorded."""
        path = self.folder / f"runs/{run}/metrics.jsonl"
        yield from untrusted.json_lines(path, RECORD_BYTES, MAX_STEPS)

    def responses(
        self, checkpoint: Checkpoint, decoding: str, benchmark: str
    ) -> list[AnsweredProblem]:
        """Return the responses of one cell, problem by problem.

        Raises:
            RefusedError: a line that holds something else.
        """
        path = self.folder / f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl"
        lines, samples = rows_of_benchmark(benchmark), self.samples(benchmark)
        found: list[AnsweredProblem] = []
        for number, record in enumerate(untrusted.json_lines(path, LINE_BYTES, lines), 1):
            if not isinstance(record, dict) or record.keys() != FIELDS.keys():
                raise untrusted.RefusedError(f"line {number}: expected {', '.join(FIELDS)}")
            try:
                found.append(answered_problem(record, samples))
            except ValueError as error:
                raise untrusted.RefusedError(f"line {number}: {error}") from error
        return found

    def samples(self, benchmark: str) -> int:
        """Return how many responses each problem gets."""
        return self.study.benchmarks[benchmark].samples

    def cells(self) -> Iterator[tuple[Checkpoint, str, str]]:
        """Yield checkpoint, decoding and benchmark of every cell."""
        for decoding in self.study.run.decodings:
            for checkpoint, benchmark in self.study.cells(decoding):
                yield checkpoint, decoding, benchmark


def rows_of_benchmark(benchmark: str) -> int:
    """Return how many problems a benchmark has."""
    rows: int = benchmark_definitions()[benchmark]["metadata"]["rows"]
    return rows


def read_published_study(folder: Path) -> Study:
    """Return the study of a results folder.

    Raises:
        StudyError: it is no results folder, in one line.
    """
    try:
        about = untrusted.read_json(folder / "provenance.json")
        untrusted.read_text(folder / SUMS, FILE_BYTES)
        untrusted.require_modest(about["study"])
        steps = about["study"]["training"]["steps"]
        if not isinstance(steps, int) or steps > MAX_STEPS:
            raise untrusted.RefusedError(f"training.steps: {steps} are more than are looked at")
        return parse_study(about["study"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise StudyError(
            [
                f"{folder}: no results folder with provenance.json and {SUMS} ({reason or repr(error)})"
            ]
        ) from error


def files_needed(study: Study) -> int:
    """Return at least how many files a study's folder has; `stapo.study.checks` bounds its cells."""
    cells = sum(1 for decoding in study.run.decodings for _ in study.cells(decoding))
    return 2 * cells + 2 * sum(1 for _ in study.runs())


def admit(
    study: Study, folder: Path, belongs: Callable[[], Layout]
) -> tuple[dict[str, Path], list[str]]:
    """Return the visible files of a folder, and a line for each that must not be read.

    Args:
        study: whose results it holds.
        folder: looked at entry by entry; no link is followed.
        belongs: what belongs to the study, asked for once that is known to be of a modest size.
    """
    try:
        entries, errors = _entries(folder)
    except untrusted.RefusedError as error:
        return {}, [str(error)]
    errors += _size_errors(study, len(entries))
    if errors:
        return {}, errors
    layout = belongs()
    files = {path: folder / path for path in sorted(entries)}
    limits = _Limits(study)
    for path, size in sorted(entries.items()):
        if layout.has(path) and (fault := limits.fault(files[path], path, size)):
            errors.append(f"{path}: {fault}")
    return files, errors


def _entries(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of the visible files of a folder, and a line for each entry that is no file."""
    sizes, errors = {}, []
    for path, status in untrusted.walk(folder):
        if fault := untrusted.irregular(status):
            errors.append(f"{path}: {fault}")
        elif not is_hidden(Path(path)) and path != SUMS:
            sizes[path] = status.st_size
    return sizes, errors


def _size_errors(study: Study, files: int) -> Iterator[str]:
    """Yield why a study is larger than what is here, before anything of it is listed."""
    if (needed := files_needed(study)) > files:
        yield f"the study needs {needed} files and more, {files} are here"
    for name in study.evaluated():
        samples = study.benchmarks[name].samples
        if samples * rows_of_benchmark(name) > MAX_RESPONSES:
            yield f"benchmarks.{name}.samples: {samples} are more than are looked at"


@dataclass(frozen=True)
class _Limits:
    """How much the files of a study may hold."""

    study: Study

    def fault(self, file: Path, path: str, size: int) -> str | None:
        """Return why a file must not be read, None for one that may be."""
        kind = path.partition("/")[0]
        try:
            if path.endswith(WEIGHTS):
                return None  # Only checksummed, and mapped where they are looked into.
            if kind == "completions":
                return self._lines(file, *self._cell(path))
            if kind == "scores":
                rows = prod(self._cell(path))
                limit = min(rows * ROW_BYTES, SCORE_BYTES)
                return untrusted.parquet_fault(file, SCHEMA, rows, limit)
            if path.endswith("/metrics.jsonl"):
                return _count(file, RECORD_BYTES, self.study.training.steps)
            if path == "data/prompts.jsonl":
                return _count(file, PROMPT_BYTES, MAX_PROMPTS, FILE_BYTES)
            if Path(path).name in READ:
                untrusted.read_json(file)
        except (OSError, ValueError, LookupError) as error:
            return str(error) or repr(error)
        return f"has {size} bytes, more than {FILE_BYTES}" if size > FILE_BYTES else None

    def _cell(self, path: str) -> tuple[int, int]:
        """Return problems and samples of a cell."""
        benchmark = Path(path).stem
        return rows_of_benchmark(benchmark), self.study.benchmarks[benchmark].samples

    def _lines(self, file: Path, problems: int, samples: int) -> str | None:
        tokens = self.study.evaluation.max_response_tokens
        line = min(LINE_BYTES, 2**16 + samples * (1024 + TOKEN_BYTES * tokens))
        return _count(file, line, problems, CELL_BYTES)


def _count(file: Path, line_bytes: int, lines: int, limit: int | None = None) -> str | None:
    untrusted.open_regular(file, limit).close()
    for _ in untrusted.raw_lines(file, line_bytes, lines):
        pass
    return None
