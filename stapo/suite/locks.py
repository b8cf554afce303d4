"""File locks: one process per work directory, one Snakemake per study at a time, one job per GPU.

Snakemake's own lock is a list of files, which must be removed by hand after a kill. The locks here are
kernel locks (flock), which end with their process, so the profiles turn Snakemake's off. A killed Snakemake
leaves its jobs running. A second one would write the same files as these jobs, so it waits for them.
Snakemake counts GPUs but does not assign them to jobs, which lease them here. filelock has no shared kernel
lock, and none that outlives exec.
"""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stapo.core.files import canonical, read_json, text_of, write_json

STUDY_LOCK = "work/{study}/snakemake.lock"
JOBS_LOCK = "work/{study}/jobs.lock"
VARIABLE = "STAPO_JOBS_LOCK"
"""Environment variable of a study's jobs: the file on which each job holds a shared lock while it runs."""
SECONDS_BETWEEN_LOOKS = 0.5


class BusyError(RuntimeError):
    """Another process uses the same work directory, study or GPUs."""


class ForeignDirectoryError(RuntimeError):
    """A work directory belongs to another configuration."""


@contextmanager
def work_directory(path: Path, config: Any) -> Iterator[Path]:
    """Lock a work directory for this process, and bind it to `config` at its first use.

    If another process uses it, such as that of a study with the same training, wait until it has ended: what
    it has finished is not made again.

    Raises:
        ForeignDirectoryError: it contains the state of another configuration.
    """
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            _say(f"{path}: waiting for another process that makes the same ({lock.read()})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _sign(lock.fileno())
        identity = path / "config.json"
        if not identity.exists():
            write_json(identity, config)
        elif canonical(read_json(identity)) != canonical(config):
            message = "contains the state of another configuration"
            raise ForeignDirectoryError(f"{path}: {message}; choose another directory or remove it")
        yield path


def claim_study(study: str) -> None:
    """Lock a study until this process ends, and wait for the jobs of an earlier run.

    Raises:
        BusyError: another Snakemake runs this study in this directory.
    """
    path, jobs = (Path(lock.format(study=study)) for lock in (STUDY_LOCK, JOBS_LOCK))
    if (lock := _lock(path)) is None:
        raise BusyError(
            f"{path}: another snakemake runs this study ({text_of(path)}); wait for it or stop it"
        )
    _sign(lock)
    if (lock := _lock(jobs)) is None:
        pids = ", ".join(holders(jobs.stat().st_ino)) or "on another host"
        message = f"waiting for jobs of an earlier run (processes: {pids})"
        _say(f"{message}; if you kill them, they are resumed")
        lock = _awaited(jobs, fcntl.LOCK_EX)
    os.close(lock)


def join_jobs() -> None:
    """Take the shared lock of a study's jobs, if this process is one of them; exec keeps it."""
    if path := os.environ.get(VARIABLE):
        # Only a starting Snakemake holds it exclusively, for a moment.
        os.set_inheritable(_awaited(Path(path), fcntl.LOCK_SH), True)


def _lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """Return the descriptor of a locked file, None if another process has it locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError as error:
        remedy = "do not run a study twice at the same time here"
        _say(f"{path}: cannot be locked ({error.strerror}); {remedy}")
    return lock


def _awaited(path: Path, kind: int) -> int:
    """Return the descriptor of a file when it can be locked."""
    while (lock := _lock(path, kind)) is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return lock


def _sign(lock: int) -> None:
    """Write into a locked file who holds it: host and process."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.uname().nodename} {os.getpid()}".encode(), 0)


def holders(inode: int) -> list[str]:
    """Return the process id of each lock on this host on a file of an inode."""
    try:
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    # 3: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
    fields = [line.split() for line in lines]
    return [f[4] for f in fields if len(f) == 8 and f[5].endswith(f":{inode}")]


def lease(count: int, devices: Sequence[str], directory: Path) -> list[str]:
    """Wait for free devices and lock them until this process ends; exec keeps the locks.

    All jobs that share the devices have the same directory of lock files.

    Raises:
        BusyError: there are fewer devices.
    """
    if count > len(devices):
        remedy = "request fewer in the profile's resources"
        raise BusyError(f"--gpus {count}: only {len(devices)} available; {remedy}")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (held := _locked(count, devices, directory)) is None:
        _say(f"waiting for {count} of the GPUs {', '.join(devices)}")
    while held is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        held = _locked(count, devices, directory)
    for lock in held.values():
        os.set_inheritable(lock, True)
    return list(held)


def _locked(count: int, devices: Sequence[str], directory: Path) -> dict[str, int] | None:
    """Lock exactly `count` devices or none: two jobs with half of their devices each would deadlock."""
    held: dict[str, int] = {}
    for device in devices:
        path = directory / f"{device.replace('/', '_')}.lock"
        if len(held) < count and (lock := _lock(path)) is not None:
            held[device] = lock
    if len(held) == count:
        return held
    for lock in held.values():
        os.close(lock)
    return None


def take_gpus(count: int | None) -> None:
    """Lease `count` GPUs for this job and hide all others from this process; None leaves them as they are."""
    if count is None:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if count and visible is None:
        import torch

        visible = ",".join(map(str, range(torch.cuda.device_count())))
    named = (device.strip() for device in (visible or "").split(","))
    devices = list(dict.fromkeys(device for device in named if device))
    # Two Slurm jobs may both have a device 0.
    job = os.environ.get("SLURM_JOB_ID", "here")
    directory = Path(tempfile.gettempdir()) / f"stapo-gpus-{os.getuid()}-{job}"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(lease(count, devices, directory))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
