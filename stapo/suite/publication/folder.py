"""A results folder: what belongs to it, what it says of itself, and what may be read of somebody else's.

A downloaded folder may hold links, devices and files of any size. `admit` first checks that each file is
regular and not larger than the study allows. Only then may the functions that wrote the folder read it.
What is no results folder is a StudyError.
"""

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase as fnmatch
from functools import cached_property
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError

from stapo.core.checksums import SUMS, file_sha256, is_hidden
from stapo.core.files import DamagedFileError, read_json, write, write_json
from stapo.suite import paths
from stapo.suite.job import Job
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.train import of_checkpoint
from stapo.suite.provenance import environment
from stapo.suite.records.responses import AnsweredProblem, read_responses
from stapo.suite.study import Study, StudyError, TrainingRun, parse_study
from stapo.suite.study.files import FILES, SOURCE
from stapo.suite.study.reading import published_content

WEIGHTS = ".safetensors"
VERIFIER = "models/verifier"
"""Where the weights of the verifier are; no training names them."""
KINDS = ("models", "runs", "completions", "scores", "interventions")
ADDED = ("README.md", "regime.csv")
"""What authors may put into the folder of a study: an introduction, and the regime that they chose."""
SUFFIXES = (".jsonl", ".json", ".jinja", ".parquet", WEIGHTS)
"""Of what other methods, steps and benchmarks leave: nothing that a program would run or a reader believe."""
RECORDED = (f"/{paths.METRICS_FILE}", f"/{paths.TOKENS_FILE}")
"""Ends of the paths of what a training records."""
FILE_BYTES = 2**28
"""Maximum size of a file that is read, without its token records; the largest are JSON lines."""
MOST_COMPRESSED = 64
"""Times that a file system might compress weights; a file with more is sparse, and takes hours to read."""
MACHINES = ("engine",)
"""Sections of a published study that say nothing about its results, and are not read."""


@dataclass(frozen=True)
class Layout:
    """What belongs to a study's results folder, by paths from there."""

    files: frozenset[str]
    models: frozenset[str]
    """Directories with weights in them, and with what belongs to weights."""

    def has(self, path: str) -> bool:
        """Return whether a path is one of the study's; never for one that leaves the folder.

        A model's directory holds safetensors, JSON, templates and checksums; a pickle there would be run
        by whoever loads it.
        """
        directory, _, name = path.rpartition("/")
        is_model_file = any(fnmatch(name, pattern) for pattern in (*FILES, SUMS))
        return path in self.files or path in ADDED or (directory in self.models and is_model_file)

    def is_leftover(self, path: str) -> bool:
        """Return whether another form of the study may have left a path: another method, another step."""
        kind, _, name = path.partition("/")
        return kind in KINDS and (path.endswith(f"/{SUMS}") or Path(name).suffix in SUFFIXES)

    def is_training_output(self, path: str) -> bool:
        """Return whether the provenance of a training must name a path."""
        recorded = path.startswith("runs/") and path.endswith(RECORDED)
        verifier = path.startswith(f"{VERIFIER}/")
        other = path in ADDED or path in self.files or verifier
        return self.has(path) and (recorded or not other)


def layout(study: Study) -> Layout:
    """Return what belongs to a study's results folder."""
    base, jobs = paths.RESULTS.format(study=study.name) + "/", jobs_of(study)
    models = (place.removeprefix(base) for job in jobs for place in job.weights)
    files = (path.removeprefix(base) for path in jobs.published())
    return Layout(frozenset(files), frozenset(models))


def write_provenance(study: Study, root: Path = Path()) -> list[Path]:
    """Write `provenance.json` and `SHA256SUMS` of a finished study; return their paths.

    `sha256sum --check` reads the latter. Checksums of weights are those that the trainings took when they
    published them, so that weights which were swapped since do not pass; absent weights are listed too. What
    an earlier form of the study left in the folder is not listed.
    """
    folder = root / paths.RESULTS.format(study=study.name)
    belongs = layout(study)
    known, gpus = dict[str, str](), set[str]()
    for run in study.runs():
        record = read_run(study, root, run)
        if record["fingerprint"] != jobs_of(study).job("train", run).fingerprint:
            raise RuntimeError(
                f"{run.model} {run.method} seed {run.seed}: trained with other settings; run snakemake again"
            )
        known |= named_by(run, record)
        gpus |= {*record["environment"]["gpus"]}
    named = (path.format(study=study.name) for path in (paths.PROVENANCE, paths.CHECKSUMS))
    provenance, sums = (root / path for path in named)
    written, made = datetime.now(UTC).isoformat(timespec="seconds"), environment()
    # This machine may have GPUs that no training used.
    made["gpus"] = [gpu for gpu in made["gpus"] if gpu in gpus]
    write_json(provenance, {**about_study(study, root), "written": written, "environment": made})
    listed = {path: sha for path, sha in known.items() if belongs.is_training_output(path)}
    for place, path in admit(study, folder, belongs)[0].items():
        if belongs.has(place) and place not in listed:
            listed[place] = file_sha256(path)
    write(sums, "".join(f"{sha}  {path}\n" for path, sha in sorted(listed.items())))
    return [provenance, sums]


def named_by(run: TrainingRun, record: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that the record of a training names, from the study's folder, with their checksums."""
    places = {f"runs/{run}": record["outputs"], f"models/{run.model}/base": record["base"]}
    return {f"{at}/{path}": sha for at, sums in places.items() for path, sha in sums.items()}


def read_run(study: Study, root: Path, run: TrainingRun) -> dict[str, Any]:
    """Return what a training left of itself."""
    return read_json(root / paths.RUN_PROVENANCE.format(study=study.name, **run._asdict()))


def _sources(study: Study, root: Path) -> dict[str, Any]:
    """Return where the models came from, with the commit that a branch was at."""
    sources = {job.name: root / job.weights[0] / SOURCE for job in jobs_of(study).all("base")}
    return {name: read_json(path) for name, path in sources.items() if path.exists()}


def about_study(study: Study, root: Path) -> dict[str, Any]:
    """Return what follows from the study and what its trainings left: the same whenever it is asked."""
    runs = {run: read_run(study, root, run) for run in study.runs()}
    joules = [record["joules"] for record in runs.values()]
    return {
        "study": published_content(study),
        "models": _sources(study, root),
        "benchmarks": {n: study.task(n)["metadata"] for n in study.run.benchmarks},
        "base": {run.model: record["base"] for run, record in runs.items()},
        "prompts": next((record["prompts"] for record in runs.values()), None),
        "fingerprints": {
            str(checkpoint): of_checkpoint(jobs_of(study), checkpoint).fingerprint
            for checkpoint in study.checkpoints()
        },
        "training_seconds": sum(record["seconds"] for record in runs.values()),
        "training_gpu_hours": sum(record["gpu_seconds"] for record in runs.values()) / 3600,
        # A run without a meter would make the sum a wrong number.
        "training_joules": None if None in joules else sum(joules),
    }


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
        return {run: read_run(self.study, self.root, run) for run in self.study.runs()}

    @cached_property
    def sums(self) -> dict[str, str]:
        """Path -> checksum in `SHA256SUMS`."""
        text = (self.folder / SUMS).read_text(encoding="utf-8")
        lines = [line.partition("  ") for line in text.splitlines()]
        checksums = {path: stated for stated, _, path in lines}
        if len(checksums) < len(lines):
            raise DamagedFileError(f"{SUMS}: lists a file twice")
        return checksums

    def digest_of(self, path: str) -> str | None:
        """Return the checksum of a file, or the listed one if it was left out; None without both."""
        if path in self.files:
            return self.digest(self.files[path])
        return self.sums.get(path)

    @cached_property
    def is_summary(self) -> bool:
        """Whether all raw data is left out, as in git; see `is_raw`."""
        return not any(map(is_raw, self.files))

    def responses(self, score: Job) -> list[AnsweredProblem]:
        """Return the responses that a job scores, one item for each problem."""
        benchmark = self.study.benchmarks[score.name.rpartition("/")[2]]
        return read_responses(self.root / score.inputs[0], samples=benchmark.samples)


UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError,
    SafetensorError,
)  # fmt: skip
"""What reading a file that somebody else wrote may raise."""


def read_published_study(folder: Path) -> Study:
    """Return the study of a results folder."""
    try:
        for name in ("provenance.json", SUMS):
            if fault := _fault(folder / name):
                raise DamagedFileError(f"{name}: {fault}")
        return published_study(read_json(folder / "provenance.json")["study"])
    except UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0] or repr(error)
        line = f"{folder}: no results folder with provenance.json and {SUMS} ({reason})"
        raise StudyError([line]) from error


def published_study(raw: dict[str, Any]) -> Study:
    """Return a study that somebody else recorded, without what it says about machines."""
    return parse_study({key: value for key, value in raw.items() if key not in MACHINES})


def is_raw(path: str) -> bool:
    """Return whether a path is one of the raw data, which a summary in git leaves out."""
    raw = {
        "data": path.endswith(".jsonl"),
        # Whole directories: Snakemake would take one without weights for a finished model.
        "models": PurePosixPath(path).parent.name in ("base", "verifier"),
        "runs": not path.endswith(f"/{paths.RECORD_FILE}"),
        "completions": True,
        "scores": True,
        "interventions": path.endswith(".parquet"),
    }
    return raw.get(path.partition("/")[0], False)


def is_rendering(path: str) -> bool:
    """Return whether a folder may be without a path, since it can be drawn again: the report, and figures."""
    return path == "report.html" or path.startswith("figures/")


def admit(study: Study, folder: Path, layout: Layout) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a folder that may be read, and an error line for each that must not be.

    Hidden files and the checksums are apart. Hidden are what Snakemake remembers and what a kill left half
    written; nothing reads them.
    """
    files: dict[str, Path] = {}
    errors, largest = [], FILE_BYTES + study.training.token_records_mb * 10**6
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if file.is_dir() and not file.is_symlink():
            continue
        # Of weights, and of what does not belong to the study, at most checksums are computed.
        is_read = layout.has(path) and file.suffix != WEIGHTS
        fault = _fault(file, largest if is_read else inf)
        if fault:
            errors.append(f"{path}: {fault}")
        elif not is_hidden(Path(path)) and path != SUMS:
            files[path] = file
    return files, errors


def _fault(file: Path, limit: float = FILE_BYTES) -> str | None:
    """Return why a file must not be read, None for a regular one of no more bytes than the limit."""
    status = file.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file but a device, FIFO or socket"
    if status.st_size > limit:
        return f"has {status.st_size} bytes, more than {limit}"
    if status.st_size > FILE_BYTES and 512 * status.st_blocks * MOST_COMPRESSED < status.st_size:
        return f"has {status.st_size} bytes, nearly all of them holes: it is no file of weights"
    return None
