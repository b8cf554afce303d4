"""A results folder to verify: its study, its files, and the limits on reading them.

A downloaded folder may hold links, devices and files of any size. `admit` first checks that each file is
regular and not larger than the study allows. Only then may the functions that wrote the folder read it.
"""

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

from stapo.files import read_json, read_jsonl
from stapo.paths import RECORD_FILE, TOKENS_FILE
from stapo.provenance import SUMS, is_hidden
from stapo.publication.manifest import WEIGHTS, Layout
from stapo.records.responses import AnsweredProblem, read_responses
from stapo.stages import Job
from stapo.study import Checkpoint, Study, StudyError, TrainingRun, parse_study

FILE_BYTES = 64 * 2**20
"""Maximum size of a file without a specific limit; the largest is the report with its figures."""
LINES_BYTES = 2**28
"""Maximum size of a file of JSON lines."""
MACHINES = ("engine",)
"""Sections of a published study that say nothing about its results, and are not read."""


class RefusedError(ValueError):
    """A file is not read; the message says why."""


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
            run: read_json(self.folder / f"runs/{run}/provenance.json") for run in self.study.runs()
        }

    def metrics(self, run: TrainingRun) -> list[dict[str, Any]]:
        """Return the metrics records of a training."""
        return read_jsonl(self.folder / f"runs/{run}/metrics.jsonl")

    @cached_property
    def sums(self) -> dict[str, str]:
        """Path -> checksum in `SHA256SUMS`."""
        text = (self.folder / SUMS).read_text()
        lines = [line.partition("  ") for line in text.splitlines()]
        found = {path: stated for stated, _, path in lines}
        if len(found) < len(lines):
            raise RefusedError(f"{SUMS}: lists a file twice")
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
            DamagedFileError: a line does not have the expected content.
        """
        path = self.folder / f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl"
        return read_responses(path, samples=self.study.benchmarks[benchmark].samples)

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
        for name in ("provenance.json", SUMS):
            if fault := _fault(folder / name):
                raise RefusedError(f"{name}: {fault}")
        return published_study(read_json(folder / "provenance.json")["study"])
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
    found: dict[str, Path] = {}
    errors = []
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if file.is_dir() and not file.is_symlink():
            continue
        # Of weights, and of what does not belong to the study, at most checksums are computed.
        is_read = layout.has(path) and file.suffix != WEIGHTS
        fault = _fault(file, _limit(study, file) if is_read else inf)
        if fault:
            errors.append(f"{path}: {fault}")
        elif not is_hidden(Path(path)) and path != SUMS:
            found[path] = file
    return {} if errors else found, errors


def _fault(file: Path, limit: float = FILE_BYTES) -> str | None:
    """Return why a file must not be read, None for a regular one of no more bytes than the limit."""
    status = file.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file but a device, FIFO or socket"
    return f"has {status.st_size} bytes, more than {limit}" if status.st_size > limit else None


def _limit(study: Study, file: Path) -> int:
    """Return the maximum size of a file that is read."""
    if file.name == TOKENS_FILE:
        return FILE_BYTES + study.training.token_records_mb * 10**6
    return LINES_BYTES if file.suffix == ".jsonl" else FILE_BYTES
