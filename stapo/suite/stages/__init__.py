"""The stages of a study: those in `STAGES` of each file here.

Rules of Snakemake, `stapo run`, `status`, `plan` and `verify` all ask the jobs of a stage. A fingerprint is
the hash of its own settings and of those of all that it reads, so that it says whether a result is one of the
study as it is now. The files import torch, pandas and the like only inside functions that run jobs.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from stapo.core.checksums import SUMS, changed_files, damaged_file, file_sums
from stapo.core.files import DamagedFileError, fingerprint, read_json, text_of, write_json
from stapo.suite import paths
from stapo.suite.study import Study, StudyError

REMEMBERED = 8
"""Studies whose jobs are kept."""
CONFIGURATION = re.compile(r"\bConfiguration ([0-9a-f]{16})\b")
"""In tables and reports: the fingerprint with which they were made."""
UNFINISHED = ""
"""In the record of a job that has begun and not ended."""
_recent: list["Jobs"] = []


@dataclass(frozen=True, eq=False)
class Job:
    """One job of a stage."""

    stage: str
    name: str
    """Unique within the stage; words separated by `/`, such as `1.7B/stapo/seed0`."""
    settings: dict[str, Any]
    """What determines the result besides what is read; `recipe` is raised when the code changes results."""
    reads: "Mapping[str, Job | tuple[Job, ...]]" = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    """Published files."""
    weights: tuple[str, ...] = ()
    """Directories of weights."""
    also: Any = None
    """What makes Snakemake run the job again without being part of the fingerprint, such as how many
    intermediate weights are kept."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that determines the result, with the configuration of what is read."""
        read = {
            name: one.config if isinstance(one, Job) else [job.fingerprint for job in one]
            for name, one in self.reads.items()
        }
        return {**read, **self.settings}

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the configuration as canonical JSON."""
        return fingerprint(self.config)

    @property
    def sources(self) -> Iterator["Job"]:
        """The jobs whose results it reads directly."""
        for one in self.reads.values():
            yield from (one,) if isinstance(one, Job) else one

    @property
    def inputs(self) -> list[str]:
        """Files that it reads; directories of weights apart."""
        return [*dict.fromkeys(path for job in self.sources for path in job.outputs)]

    @property
    def param(self) -> str:
        """What is compared to know whether it is to run again: its fingerprint, and `also`."""
        if self.also is None:
            return self.fingerprint
        return fingerprint([self.fingerprint, [self.also]])

    @property
    def read_files(self) -> list[str]:
        """Files that it reads; of weights, their checksums."""
        return [*self.inputs, *(path for job in self.sources for path in job.sums)]

    @property
    def sums(self) -> list[str]:
        """Files with the checksums of its weights."""
        return [f"{place}/{SUMS}" for place in self.weights]

    @property
    def written_files(self) -> list[str]:
        """Files that it writes; of weights, their checksums."""
        return [*self.outputs, *self.sums]

    @property
    def record(self) -> str:
        """Where it is recorded how it was done."""
        study = self.written_files[0].split("/")[1]
        name = self.name or self.stage
        return paths.JOB_RECORD.format(study=study, stage=self.stage, name=name)


@dataclass(frozen=True)
class Resources:
    """Where a job may run."""

    gpus: int | None = None
    """GPUs to lease; None: all, without lease."""
    nodes: int = 1


@dataclass
class Stage:
    """One step of every study."""

    after: tuple[str, ...]
    """Stages whose results it reads."""
    jobs: "Callable[[Jobs], Iterator[Job]]"
    """Yields its jobs, each with what determines the result and where it is written."""
    run: "Callable[[Jobs, list[Job], Resources], None]"
    """Does the work of some of its jobs."""
    recorded: Callable[[Job, Path], str | None] = lambda job, root: None
    """Returns the fingerprint with which results below a directory were made, None if they have none."""
    is_costly: bool = False
    """Whether to ask, before its work is done, whether the results are there and were made like that."""


class Jobs:
    """All jobs of a study, made when they are asked for."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._found: dict[str, dict[str, Job]] = {}

    def of(self, stage: str) -> dict[str, Job]:
        """Return the jobs of a stage by name."""
        if stage not in self._found:
            self._found[stage] = {job.name: job for job in stages()[stage].jobs(self)}
        return self._found[stage]

    def one(self, stage: str, name: object) -> Job:
        """Return a job."""
        return self.of(stage)[str(name)]

    def all(self, stage: str) -> tuple[Job, ...]:
        """Return all jobs of a stage."""
        return tuple(self.of(stage).values())

    def __iter__(self) -> Iterator[Job]:
        """Yield every job, each after those that it reads."""
        for stage in stages():
            yield from self.all(stage)

    def select(self, stage: str, name: str) -> list[Job]:
        """Return the job of that name, or those whose names begin with it; all for the empty name.

        Raises:
            StudyError: there is none, with the names that there are.
        """
        if stage not in stages():
            raise StudyError([f"stage: unknown name {stage!r}; known: {', '.join(stages())}"])
        known = self.of(stage)
        if name in known:
            return [known[name]]
        found = [job for job in known.values() if not name or job.name.startswith(f"{name}/")]
        if not found:
            names = ", ".join(known) or f"none; the study has no {stage}"
            raise StudyError([f"{stage}: unknown job {name!r}; known: {names}"])
        return found

    def made_by(self, stage: str, name: str = "") -> str:
        """Return the fingerprint of the jobs that `select` returns."""
        found = [job.fingerprint for job in self.select(stage, name)]
        return found[0] if len(found) == 1 else fingerprint(found)

    def param(self, stage: str, name: str = "") -> str:
        """Return what Snakemake compares to know whether these jobs are to run again."""
        jobs = self.select(stage, name)
        return jobs[0].param if len(jobs) == 1 else fingerprint([job.param for job in jobs])

    def published(self) -> list[str]:
        """Return every file that a finished study has, weights and checksums apart.

        All of them are asked for by name: Snakemake takes a file that is missing for one that is not
        needed as long as what was made from it is there.
        """
        found = dict.fromkeys(path for job in self for path in job.outputs)
        return [path for path in found if Path(path).name != SUMS]


def jobs_of(study: Study) -> Jobs:
    """Return the jobs of a study; the same object for the same study."""
    for known in _recent:
        if known.study is study:
            return known
    _recent[:] = [Jobs(study), *_recent[: REMEMBERED - 1]]
    return _recent[0]


@cache
def stages() -> dict[str, Stage]:
    """Return all stages by name, each after those that it reads."""
    found: dict[str, Stage] = {}
    for one in iter_modules(__path__):
        found |= import_module(f"{__name__}.{one.name}").STAGES
    order = TopologicalSorter({name: found[name].after for name in sorted(found)})
    return {name: found[name] for name in order.static_order()}


def run(study: Study, stage: str, name: str, how: Resources) -> None:
    """Do the work of the jobs of a stage with that name, or whose names begin with it.

    Raises:
        StudyError: there is no such job, or what it reads is missing.
    """
    of = jobs_of(study)
    jobs = of.select(stage, name)
    if errors := missing_inputs(jobs):
        raise StudyError(errors)
    # `stapo status` knows by it whose log it is.
    print(f"configuration {of.made_by(stage, name)}", flush=True)
    if stages()[stage].is_costly:
        done = [job for job in jobs if _is_done(job)]
        jobs = [job for job in jobs if job not in done]
        for job in done:
            print(f"{job.name}: made before, with the same settings from the same files")
    first = os.environ.get("RANK", "0") == "0"
    # Without figures to draw, as of base models alone, a job writes nothing.
    writing = [job for job in jobs if job.written_files and first]
    read = {job: _sums(job.read_files) for job in writing}
    for job in read:
        # Until it is done, old results are none of the present settings.
        write_json(Path(job.record), {"made_by": UNFINISHED})
    if jobs:
        stages()[stage].run(of, jobs, how)
    for job, sums in read.items():
        if _sums(job.read_files) == sums:
            wrote = _sums(job.written_files)
            write_json(Path(job.record), {"made_by": job.param, "read": sums, "wrote": wrote})
        else:
            about = "what it is made from changed meanwhile"
            print(f"{job.written_files[0]}: {about}; run the same snakemake command again")


def _is_done(job: Job) -> bool:
    """Return whether the results of a job are there, whole, and what it would make."""
    is_damaged = any(damaged_file(Path(place)) for place in job.weights)
    return made_by(job) == job.param and is_unchanged(job) and not is_damaged


def _sums(files: Iterable[str]) -> dict[str, str]:
    return file_sums(Path(), [path for path in files if Path(path).is_file()])


def made_by(job: Job, root: Path = Path()) -> str | None:
    """Return the `param` with which the results of a job were made.

    `UNFINISHED` while it is done, and after it failed; None without a record.
    """
    return _recorded(job, root).get("made_by")


def is_outdated(job: Job, root: Path = Path()) -> bool:
    """Return whether results of a job are there that were made with other settings, by record or content."""
    by_content = stages()[job.stage].recorded(job, root)
    return made_by(job, root) not in (None, job.param) or by_content not in (None, job.fingerprint)


def cause(job: Job, root: Path = Path()) -> str:
    """Return why the results of a job are outdated."""
    is_unfinished = made_by(job, root) == UNFINISHED
    return "the job that writes it has not ended" if is_unfinished else "made with other settings"


def is_unchanged(job: Job, root: Path = Path()) -> bool:
    """Return whether what a job read and wrote is still there with the same content.

    What it read may be missing: weights are removed to make space.
    """
    record = _recorded(job, root)
    read, wrote = (record.get(name) for name in ("read", "wrote"))
    if not isinstance(read, dict) or not isinstance(wrote, dict):
        return False
    now = {path for path in job.read_files if (root / path).is_file()}
    if not now <= read.keys() or wrote.keys() != {*job.written_files}:
        return False
    return not changed_files(root, {path: read[path] for path in now} | wrote)


def _recorded(job: Job, root: Path) -> dict[str, Any]:
    with suppress(OSError, DamagedFileError):
        return read_json(root / job.record) if job.written_files else {}
    return {}


def missing_inputs(jobs: Iterable[Job], root: Path = Path()) -> list[str]:
    """Return a line for each file that some jobs read and that is missing, with the command that makes it.

    Neither are results of other settings, or of a job that failed, what is to be read.
    """
    lines = []
    for source in dict.fromkeys(source for job in jobs for source in job.sources):
        by_hand = f"stapo run {source.stage} {source.name}".rstrip()
        absent = [path for path in (*source.outputs, *source.weights) if not (root / path).exists()]
        if absent:
            lines.append(
                f"{absent[0]}: missing; make it with snakemake, or: {by_hand} --study STUDY"
            )
        # The weights of one checkpoint are a part of what a job makes.
        elif source.stage != "weights" and made_by(source, root) not in (None, source.param):
            made = cause(source, root)
            again = f"snakemake --forcerun {source.outputs[0]} --configfile STUDY"
            again += f"; by hand: {by_hand} --study STUDY"
            lines.append(f"{source.outputs[0]}: {made}; make it again: {again}")
    return lines


def recorded_in(path: Path) -> str | None:
    """Return the fingerprint with which a file was made, empty if it names none, None if it is missing."""
    if not path.is_file():
        return None
    with suppress(ValueError, RecursionError, OSError):
        if path.suffix == ".parquet":
            from stapo.suite.records.scores import read_identity

            return str(read_identity(path).get("fingerprint", ""))
        if path.suffix == ".json":
            return str(read_json(path).get("fingerprint", ""))
        found: list[str] = CONFIGURATION.findall(text_of(path))
        return found[-1] if found else ""
    return ""


def recorded_first(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the first file of a job."""
    return recorded_in(root / job.outputs[0])
