"""How the results of a job were made, by the record of the job or by what they contain."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stapo.core.checksums import changed_files
from stapo.core.files import json_of
from stapo.suite import paths
from stapo.suite.job import Job
from stapo.suite.jobs import STAGES
from stapo.suite.study import Study

UNFINISHED = ""
"""In the record of a job that has begun and not ended."""


def made_by(job: Job) -> str | None:
    """Return the `param` with which the results of a job were made.

    `UNFINISHED` while it is done, and after it failed; None without a record.
    """
    return _record(job).get("made_by")


def outdated(job: Job) -> str:
    """Return why results of a job that are there are not those of its settings, by record or content."""
    made, by_content = made_by(job), STAGES[job.stage].recorded(job, Path())
    if made == UNFINISHED:
        return "the job that writes it has not ended"
    if by_content == "":
        return "damaged, incomplete, or without the fingerprint of its settings"
    differs = made not in (None, job.param) or by_content not in (None, job.fingerprint)
    return "made with other settings" if differs else ""


def is_unchanged(job: Job) -> bool:
    """Return whether what a job read and wrote is still there with the same content.

    What it read may be missing: weights are removed to make space.
    """
    record = _record(job)
    read, wrote = (record.get(name) for name in ("read", "wrote"))
    if not isinstance(read, dict) or not isinstance(wrote, dict):
        return False
    now = {path for path in job.read_files if Path(path).is_file()}
    if not now <= read.keys() or wrote.keys() != {*job.written_files}:
        return False
    return not changed_files(Path(), {path: read[path] for path in now} | wrote)


def _record(job: Job) -> dict[str, Any]:
    return json_of(Path(job.record)) if job.written_files else {}


def missing_inputs(jobs: Iterable[Job]) -> list[str]:
    """Return a line for each file that some jobs read and that is missing, with the command that makes it.

    Neither are results of other settings, or of a job that failed, what is to be read.
    """
    lines = []
    for source in dict.fromkeys(source for job in jobs for source in job.sources):
        by_hand = f"stapo run {source.stage} {source.name}".rstrip()
        absent = [path for path in (*source.outputs, *source.weights) if not Path(path).exists()]
        if absent:
            lines.append(
                f"{absent[0]}: missing; make it with snakemake, or: {by_hand} --study STUDY"
            )
        # The weights of one checkpoint are a part of what a job makes.
        elif source.stage != "weights" and made_by(source) not in (None, source.param):
            again = f"snakemake --forcerun {source.outputs[0]} --configfile STUDY"
            again += f"; by hand: {by_hand} --study STUDY"
            lines.append(f"{source.outputs[0]}: {outdated(source)}; make it again: {again}")
    return lines


def has_tables_alone(study: Study) -> bool:
    """Return whether the main tables are here without the scores that they were made from, as in git."""
    tables = (
        paths.MAIN_TABLE.format(study=study.name, decoding=name) for name in study.run.decodings
    )
    has_scores = Path(paths.SCORES_FOLDER.format(study=study.name)).exists()
    return all(Path(table).exists() for table in tables) and not has_scores
