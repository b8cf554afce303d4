"""One Snakemake at a time for each study, and none beside the jobs that an earlier one left running.

Snakemake's own lock is a list of files that outlives it: after a kill it must be removed by hand. These are
locks of the kernel, which end with their process, so profiles turn Snakemake's off. A Snakemake that is
killed leaves its jobs running; beside them the next one would publish what they publish too, so it waits.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

STUDY_LOCK = "work/{study}/snakemake.lock"
JOBS_LOCK = "work/{study}/jobs.lock"
VARIABLE = "STAPO_JOBS_LOCK"
"""Set for the jobs of a study: the file that each of them locks, shared, for as long as it runs."""
SECONDS_BETWEEN_LOOKS = 0.5


class StudyBusyError(RuntimeError):
    """Another Snakemake runs a study in this directory."""


_held: list[int] = []
"""Locks of this process; they end with it, or with what it becomes by exec."""


def claim_study(study: str) -> None:
    """Hold a study until this process ends, once no job of an earlier run is left.

    Raises:
        StudyBusyError: another Snakemake runs this study in this directory.
    """
    path = Path(STUDY_LOCK.format(study=study))
    if not _lock(path, fcntl.LOCK_EX):
        raise StudyBusyError(
            f"{path}: another snakemake runs this study here ({path.read_text()}); wait for it or stop it"
        )
    os.ftruncate(_held[-1], 0)
    os.pwrite(_held[-1], f"{os.uname().nodename} {os.getpid()}".encode(), 0)
    jobs = Path(JOBS_LOCK.format(study=study))
    if not _lock(jobs, fcntl.LOCK_EX):
        pids = ", ".join(str(pid) for pid, _ in holders(jobs.stat().st_ino)) or "on another host"
        _say(
            f"waiting for jobs that an earlier run left (processes: {pids}); kill stops them, they resume"
        )
        while not _lock(jobs, fcntl.LOCK_EX):
            time.sleep(SECONDS_BETWEEN_LOOKS)
    os.close(_held.pop())


def join_jobs() -> None:
    """Say, as a job of Snakemake, that this process works on its study."""
    if path := os.environ.get(VARIABLE):
        # Only a Snakemake that starts holds it alone, for a moment.
        while not _lock(Path(path), fcntl.LOCK_SH):
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os.set_inheritable(_held[-1], True)


def _lock(path: Path, kind: int) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    except OSError as error:
        _say(f"{path}: no lock ({error.strerror}): never run a study twice at the same time here")
    _held.append(lock)
    return True


def holders(inode: int) -> list[tuple[int, str]]:
    """Return process and device, as `major:minor`, of each lock of this host on a file of that number."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    # 3: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
    fields = [line.split() for line in lines]
    here = [f for f in fields if len(f) == 8 and f[5].endswith(f":{inode}")]
    return [(int(f[4]), f[5].rpartition(":")[0]) for f in here]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
