"""What a job of a study is: what determines it, what it reads, and what it writes.

A fingerprint is the hash of a job's own settings and of those of all that it reads, so that it says whether a
result is one of the study as it is now. How jobs are done is in `stapo.suite.runners`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS
from stapo.core.files import fingerprint, read_json, text_of
from stapo.suite import paths
from stapo.suite.study import Study, StudyError

CONFIGURATION = re.compile(r"\bConfiguration ([0-9a-f]{16})\b")
"""In tables and reports."""


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
    rerun_on: Any = None
    """What makes Snakemake run the job again without being part of the fingerprint, such as how many
    intermediate weights are kept."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that determines the result, with the configuration of what is read."""
        read = {
            name: source.config if isinstance(source, Job) else [job.fingerprint for job in source]
            for name, source in self.reads.items()
        }
        return {**read, **self.settings}

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the configuration as canonical JSON."""
        return fingerprint(self.config)

    @property
    def sources(self) -> Iterator["Job"]:
        """The jobs whose results it reads directly."""
        for source in self.reads.values():
            yield from (source,) if isinstance(source, Job) else source

    @property
    def inputs(self) -> list[str]:
        """Files that it reads; directories of weights apart."""
        return [*dict.fromkeys(path for job in self.sources for path in job.outputs)]

    @property
    def param(self) -> str:
        """What is compared to know whether it is to run again: its fingerprint, and `rerun_on`."""
        if self.rerun_on is None:
            return self.fingerprint
        return fingerprint([self.fingerprint, [self.rerun_on]])

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
class Stage:
    """One step of every study."""

    after: tuple[str, ...]
    """Stages whose results it reads."""
    jobs: "Callable[[Jobs], Iterator[Job]]"
    """Yields its jobs, each with what determines the result and where it is written."""
    recorded: Callable[[Job, Path], str | None] = lambda job, root: None
    """Returns the fingerprint with which results below a directory were made, None if they have none."""
    is_costly: bool = False
    """Whether to ask, before its work is done, whether the results are there and were made like that."""


def recorded_in(path: Path) -> str | None:
    """Return the fingerprint with which a file was made, empty if it names none, None if it is missing."""
    if not path.is_file():
        return None
    with suppress(ValueError, RecursionError, OSError):
        if path.suffix == ".parquet":
            # Snakemake starts without pyarrow.
            from stapo.suite.records.scores import read_identity

            return str(read_identity(path).get("fingerprint", ""))
        if path.suffix == ".json":
            return str(read_json(path).get("fingerprint", ""))
        stated: list[str] = CONFIGURATION.findall(text_of(path))
        return stated[-1] if stated else ""
    return ""


def recorded_first(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the first file of a job."""
    return recorded_in(root / job.outputs[0])


class Jobs:
    """All jobs of a study, made when they are asked for."""

    def __init__(self, study: Study, stages: Mapping[str, Stage]) -> None:
        self.study, self.stages = study, stages
        self._by_stage: dict[str, dict[str, Job]] = {}

    def by_name(self, stage: str) -> dict[str, Job]:
        """Return the jobs of a stage by name."""
        if stage not in self._by_stage:
            self._by_stage[stage] = {job.name: job for job in self.stages[stage].jobs(self)}
        return self._by_stage[stage]

    def job(self, stage: str, name: object = "") -> Job:
        """Return a job."""
        return self.by_name(stage)[str(name)]

    def all(self, stage: str) -> tuple[Job, ...]:
        """Return all jobs of a stage."""
        return tuple(self.by_name(stage).values())

    def __iter__(self) -> Iterator[Job]:
        """Yield every job, each after those that it reads."""
        for stage in self.stages:
            yield from self.all(stage)

    def select(self, stage: str, name: str) -> list[Job]:
        """Return the job of that name, or those whose names begin with it; all for the empty name."""
        if stage not in self.stages:
            known = ", ".join(self.stages)
            raise StudyError([f"stage: unknown name {stage!r}; known: {known}"])
        by_name = self.by_name(stage)
        if name in by_name:
            return [by_name[name]]
        selected = [job for job in by_name.values() if not name or job.name.startswith(f"{name}/")]
        if not selected:
            names = ", ".join(by_name) or f"none; the study has no {stage}"
            raise StudyError([f"{stage}: unknown job {name!r}; known: {names}"])
        return selected

    def made_by(self, stage: str, name: str = "") -> str:
        """Return the fingerprint of the jobs that `select` returns."""
        fingerprints = [job.fingerprint for job in self.select(stage, name)]
        return fingerprints[0] if len(fingerprints) == 1 else fingerprint(fingerprints)

    def param(self, stage: str, name: str = "") -> str:
        """Return what Snakemake compares to know whether these jobs are to run again."""
        jobs = self.select(stage, name)
        return jobs[0].param if len(jobs) == 1 else fingerprint([job.param for job in jobs])

    def published(self) -> list[str]:
        """Return every file that a finished study has, weights and checksums apart.

        All of them are asked for by name: Snakemake takes a file that is missing for one that is not
        needed as long as what was made from it is there.
        """
        outputs = dict.fromkeys(path for job in self for path in job.outputs)
        return [path for path in outputs if Path(path).name != SUMS]
