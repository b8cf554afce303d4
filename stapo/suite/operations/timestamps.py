"""Time stamps that say what the records of jobs say, before Snakemake compares them.

A folder that was copied, moved or touched has other time stamps and the same content. Snakemake keeps what it
knows beside the results, in `.snakemake`, which is not copied with them. The record of a job is.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from stapo.suite.jobs import jobs_of
from stapo.suite.results import is_unchanged, outdated
from stapo.suite.study import Study

SECOND = 10**9
"""In nanoseconds."""


def settle(study: Study) -> None:
    """Set the time stamps of results by their records.

    Results that were made with the present settings from the present files become as new as these files, and
    results of other settings older than what their jobs read. All others stay what they are.
    """
    before = 0
    for _, group in groupby(jobs_of(study), attrgetter("stage")):
        written = {job: _times(job.written_files) for job in group}
        read = {job: _times(job.read_files) for job in written}
        # Some jobs of a stage are done together, and Snakemake compares the times of all of their files.
        newest = max((max(times, default=0) for times in read.values()), default=0)
        for job, times in written.items():
            if not times or len(times) < len(job.written_files):
                continue
            # Snakemake looks through weights that are missing, to what these were made from.
            is_whole = len(read[job]) == len(job.read_files)
            at_least = newest if is_whole else max(newest, before)
            if outdated(job):
                _set(job.written_files, min(read[job], default=min(times)) - SECOND)
            elif min(times) < at_least and is_unchanged(job):
                _set(job.written_files, at_least)
        now = (max(_times(job.written_files), default=0) for job in written)
        before = max(before, newest, *now)


def _times(files: Iterable[str]) -> list[int]:
    """Return when each of some files was modified, of those that there are."""
    times = []
    for file in files:
        with suppress(OSError):
            times.append(Path(file).stat().st_mtime_ns)
    return times


def _set(files: Iterable[str], time: int) -> None:
    """Set when some files were modified, where that is permitted."""
    for file in files:
        with suppress(OSError):
            os.utime(file, ns=(time, time))


async def never(*_: object) -> bool:
    """Return that Snakemake is to compute no checksum of a file."""
    return False
