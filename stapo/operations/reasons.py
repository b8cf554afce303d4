"""Why results are made again: which settings differ from those that they were made with.

Results contain the fingerprint of their settings. The settings themselves are in the resolved studies that
earlier runs wrote under `work/`. Files are taken as they are found.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.canonical import canonical, leaves
from stapo.operations.job_logs import modified
from stapo.stages import Job, jobs_of, module
from stapo.study import Study, StudyError
from stapo.study.resolved import RESOLVED, read_resolved
from stapo.text import plain, shorten

MAX_VERSIONS = 100
"""Resolved studies that are looked at, newest first."""
SHOWN = 3
"""Settings that a reason names."""
MAX_VALUE = 60
"""Characters of a value that a reason shows."""
UNKNOWN = "other settings, which are recorded nowhere here"


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint that the results of a job contain, None where none is recorded or there."""
    look = getattr(module(job.stage), "recorded", None)
    found: str | None = look(job, root) if look else None
    return found


def changes(before: Any, now: Any) -> str:
    """Return the settings that differ, such as `training.steps 96 -> 48`; empty if none do."""
    old, new = leaves(before), leaves(now)
    found = [
        f"{plain(place)} {_shown(old, place)} -> {_shown(new, place)}"
        for place in dict.fromkeys([*new, *old])
        if old.get(place, "") != new.get(place, "")
    ]
    more = [f"{len(found) - SHOWN} more"] * (len(found) > SHOWN)
    return ", ".join([*found[:SHOWN], *more])


def _shown(values: dict[str, Any], place: str) -> str:
    if place not in values:
        return "(none)"
    return plain(shorten(canonical(values[place]), MAX_VALUE))


def reason(study: Study, root: Path, job: Job) -> str:
    """Return why the results of a job are not those of the study.

    Args:
        study: as it is now.
        root: working directory.
        job: one of its jobs, whose results contain another fingerprint.
    """
    made_by = recorded(job, root)
    places = RESOLVED.format(study=study.name, fingerprint="*")
    for path in sorted(root.glob(places), key=modified, reverse=True)[:MAX_VERSIONS]:
        # What one study has, another may lack: a method, a benchmark, a decoding.
        with suppress(StudyError, OSError, LookupError, ValueError):
            before = jobs_of(read_resolved(path)).one(job.stage, job.name)
            if made_by and made_by == before.fingerprint:
                return changes(_all_settings(before), _all_settings(job)) or "other results"
    return UNKNOWN


def _all_settings(job: Job) -> dict[str, Any]:
    """Return the settings of a job and of all that it reads, each by its place in a study."""
    found: dict[str, Any] = {}
    for source in job.reads.values():
        if isinstance(source, Job):
            found |= _all_settings(source)
    return found | {key: value for key, value in job.settings.items() if key != "recipe"}
