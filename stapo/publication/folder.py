"""A results folder to verify: its study, its files, and the limits on reading them.

`admit` first checks that each file is regular and not larger than the study allows. Only then may the
functions that wrote the folder read it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from stapo.paths import RECORD_FILE, TOKENS_FILE
from stapo.provenance import SUMS, is_hidden
from stapo.publication import untrusted
from stapo.publication.manifest import WEIGHTS, Layout
from stapo.records.interventions import SCHEMA as INTERVENTIONS
from stapo.records.interventions import TOKENS as MAX_TOKENS
from stapo.records.responses import AnsweredProblem, answered_problem
from stapo.records.scores import SCHEMA as SCORES
from stapo.records.tokens import SCHEMA as TOKENS
from stapo.records.tokens import rows_per_step
from stapo.stages import Job
from stapo.study import Checkpoint, Study, StudyError, TrainingRun, parse_study

FILE_BYTES = 64 * 2**20
"""Maximum size of a file without a specific limit; the largest is the report with its figures."""
LINES_BYTES, LINE_BYTES, MAX_LINES = 2**28, 2**25, 10**6
"""Maximum sizes of a file of JSON lines: bytes, bytes of a line such as all responses to a problem, lines."""
MAX_STEPS = 10**6
ROW_BYTES = 4096
"""Maximum average size of a row of a Parquet file, whose longest column is a text."""
EMPTY_BYTES = 2**17
"""Maximum size of a Parquet file without rows, and of what its columns unpack to."""
READ = (
    "provenance.json", "source.json", "config.json", "overlap.json", "prompts.json", "base.json",
    "verifier.json",
)  # fmt: skip
"""Names of JSON files that are read, besides those of interventions; others are only checksummed."""
MACHINES = ("engine",)
"""Sections of a published study that say nothing about its results, and are not read."""


@dataclass(frozen=True)
class Results:
    """A results folder whose files may be read."""

    study: Study
    root: Path
    """Directory in which the path `results/STUDY` leads to the folder."""
    folder: Path
    layout: Layout
    files: Mapping[str, Path]
    """Path in the folder -> file, without hidden files and the file of checksums."""
    digest: Callable[[Path], str]

    @cached_property
    def runs(self) -> dict[TrainingRun, dict[str, Any]]:
        """Content of the `provenance.json` of each training."""
        return {
            run: untrusted.read_json(self.folder / f"runs/{run}/provenance.json")
            for run in self.study.runs()
        }

    def metrics(self, run: TrainingRun) -> Iterator[dict[str, Any]]:
        """Yield the metrics records of a training."""
        path = self.folder / f"runs/{run}/metrics.jsonl"
        yield from untrusted.json_lines(path, LINE_BYTES, MAX_STEPS)

    @cached_property
    def sums(self) -> dict[str, str]:
        """Path -> checksum in `SHA256SUMS`."""
        text = untrusted.read_text(self.folder / SUMS, FILE_BYTES)
        lines = [line.partition("  ") for line in text.splitlines()]
        found = {path: stated for stated, _, path in lines}
        if len(found) < len(lines):
            raise untrusted.RefusedError(f"{SUMS}: lists a file twice")
        return found

    def digest_of(self, path: str) -> str | None:
        """Return the checksum of a file, or the listed one if it was left out; None without both."""
        if path in self.files:
            return self.digest(self.files[path])
        return self.sums.get(path)

    @cached_property
    def is_summary(self) -> bool:
        """Whether all raw data is left out, as in git; see `is_raw`."""
        return not any(map(is_raw, self.files))

    def responses(
        self, checkpoint: Checkpoint, decoding: str, benchmark: str
    ) -> list[AnsweredProblem]:
        """Return the responses of one cell, one item for each problem.

        Raises:
            RefusedError: a line does not have the expected content.
        """
        path = self.folder / f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl"
        samples = self.study.benchmarks[benchmark].samples
        found: list[AnsweredProblem] = []
        lines = untrusted.json_lines(path, LINE_BYTES, self.study.problems(benchmark))
        for number, record in enumerate(lines, 1):
            try:
                found.append(answered_problem(json.dumps(record), samples))
            except ValueError as error:
                raise untrusted.RefusedError(f"line {number}: {error}") from error
        return found

    def place(self, path: str) -> Path:
        """Return a file of the folder, of a path from the working directory of the pipeline."""
        return self.folder / path.removeprefix(f"results/{self.study.name}/")

    def cell(self, job: Job) -> tuple[Checkpoint, str, str]:
        """Return checkpoint, decoding and benchmark of a job of the stage `score`."""
        checkpoint, decoding, benchmark = job.name.rsplit("/", 2)
        return Checkpoint.parse(checkpoint), decoding, benchmark


def read_published_study(folder: Path) -> Study:
    """Return the study of a results folder.

    Raises:
        StudyError: the directory is not a results folder.
    """
    try:
        about = untrusted.read_json(folder / "provenance.json")
        untrusted.read_text(folder / SUMS, FILE_BYTES)
        return published_study(about["study"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = (str(error).splitlines() or [""])[0] or repr(error)
        line = f"{folder}: no results folder with provenance.json and {SUMS} ({reason})"
        raise StudyError([line]) from error


def published_study(raw: dict[str, Any]) -> Study:
    """Return a study that somebody else recorded, without what it says about machines.

    Raises:
        StudyError: it is not a valid study.
    """
    return parse_study({key: value for key, value in raw.items() if key not in MACHINES})


def is_raw(path: str) -> bool:
    """Return whether a path is one of the raw data, which a summary in git leaves out."""
    raw = {
        "data": path.endswith(".jsonl"),
        # Whole directories: Snakemake would take one without weights for a finished model.
        "models": PurePosixPath(path).parent.name in ("base", "verifier"),
        "runs": not path.endswith(f"/{RECORD_FILE}"),
        "completions": True,
        "scores": True,
        "interventions": path.endswith(".parquet"),
    }
    return raw.get(path.partition("/")[0], False)


def is_rendering(path: str) -> bool:
    """Return whether a summary may leave out a path that is no raw data: the report, and figures but SVG."""
    return path == "report.html" or (
        path.startswith("figures/") and path.endswith((".pdf", ".png"))
    )


def admit(study: Study, folder: Path, layout: Layout) -> tuple[dict[str, Path], list[str]]:
    """Return the visible files of a folder, and an error line for each file that must not be read."""
    sizes: dict[str, int] = {}
    errors = []
    try:
        for path, status in untrusted.walk(folder):
            if fault := untrusted.irregular(status):
                errors.append(f"{path}: {fault}")
            elif not is_hidden(Path(path)) and path != SUMS:
                sizes[path] = status.st_size
    except untrusted.RefusedError as error:
        return {}, [str(error)]
    # Of weights, only checksums are computed.
    for path in sorted(path for path in sizes if layout.has(path) and not path.endswith(WEIGHTS)):
        try:
            if not _keeps_own_limits(study, folder / path, path) and sizes[path] > FILE_BYTES:
                errors.append(f"{path}: has {sizes[path]} bytes, more than {FILE_BYTES}")
        except (OSError, ValueError, LookupError) as error:
            errors.append(f"{path}: {str(error) or repr(error)}")
    return {} if errors else {path: folder / path for path in sorted(sizes)}, errors


def _keeps_own_limits(study: Study, file: Path, path: str) -> bool:
    """Return whether a file is of a kind with limits of its own, which it keeps.

    Raises:
        ValueError: it does not keep them.
    """
    kind, training = path.partition("/")[0], study.training
    if file.suffix == ".jsonl":
        untrusted.open_regular(file, LINES_BYTES).close()
        for _ in untrusted.raw_lines(file, LINE_BYTES, MAX_LINES):
            pass
    elif kind == "scores":
        _table(file, SCORES, study.problems(file.stem) * study.benchmarks[file.stem].samples)
    elif kind == "interventions" and file.suffix == ".parquet":
        _table(file, INTERVENTIONS, study.interventions.repetitions * MAX_TOKENS)
    elif file.name == TOKENS_FILE:
        rows = training.steps * rows_per_step(training.token_records_mb, training.steps)
        _table(file, TOKENS, rows, EMPTY_BYTES + training.token_records_mb * 10**6)
    elif file.name in READ or kind == "interventions":
        untrusted.read_json(file)
    else:
        return False
    return True


def _table(file: Path, schema: pa.Schema, rows: int, limit: int = FILE_BYTES) -> None:
    untrusted.read_parquet(file, schema, rows, limit, EMPTY_BYTES + rows * ROW_BYTES)
