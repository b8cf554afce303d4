"""What of a study's results was made by the study as it is now, judged by the fingerprints in the files.

`status` and `plan` say the same since both ask here. Files are taken as they are found: what is truncated,
strange or hostile is not current, and is no error of ours.
"""

from collections import Counter
from pathlib import Path

from stapo.operations.job_logs import modified
from stapo.stages import Job, jobs_of, module, stages
from stapo.study import Checkpoint, Study, TrainingRun

SHOWN = ("tables", "intervene", "evidence", "figures", "report", "provenance")
"""Stages of which `outputs` speaks; `status` shows trainings and evaluations one by one."""


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint that the results of a job contain, None where none is recorded or there."""
    look = getattr(module(job.stage), "recorded", None)
    found: str | None = look(job, root) if look else None
    return found


def state(job: Job, root: Path) -> str:
    """Return whether the published files of a job are missing, outdated, older than its input, or there."""
    written = [modified(root / path) for path in job.outputs]
    if not all(written):
        return "missing"
    if recorded(job, root) not in (None, job.fingerprint):
        return "outdated, made with other settings"
    newest = max((modified(root / path) for path in job.inputs), default=0.0)
    return "there" if min(written) >= newest else "older than its input"


def is_trained(study: Study, root: Path, run: TrainingRun) -> bool:
    """Return whether a training is published, with the settings of the study."""
    job = jobs_of(study).one("train", run)
    there = modified(root / job.outputs[0]) > 0
    return there and recorded(job, root) == job.fingerprint


def is_built(study: Study, root: Path, name: str) -> bool:
    """Return whether the base model of a size, or the `verifier`, was made with the settings of the study."""
    job = jobs_of(study).one("base", name)
    return recorded(job, root) == job.fingerprint


def is_made(study: Study, root: Path, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is that of the study."""
    if checkpoint.run is None:
        return is_built(study, root, checkpoint.size)
    return is_trained(study, root, checkpoint.run)


def score_state(job: Job, root: Path) -> str:
    """Return whether a score is `current`, `outdated` (or unreadable) or `missing`."""
    found = recorded(job, root)
    if found is None:
        return "missing"
    return "current" if found == job.fingerprint else "outdated"


def outputs(study: Study, root: Path) -> dict[str, str]:
    """Return whether what is made of the scores is `there`, and how many files are missing."""
    of, found = jobs_of(study), {}
    for stage in (one for one in stages() if one in SHOWN):
        states = Counter(state(job, root) for job in of.all(stage))
        others = [
            f"{count} of {states.total()} {what}" if states.total() > 1 else what
            for what, count in states.items()
            if what != "there"
        ]
        if states:
            found[stage] = ", ".join(others) or "there"
    published = of.published()
    missing = sum(not modified(root / path) for path in published)
    found["files"] = f"{missing} of {len(published)} missing" if missing else "there"
    return found
