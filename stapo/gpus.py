"""Leases of the GPUs of one machine: Snakemake counts GPUs but does not assign them to jobs."""

import fcntl
import os
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stapo.study import StudyError

SECONDS_BETWEEN_LOOKS = 0.5


def lease(count: int, devices: Sequence[str], directory: Path) -> list[str]:
    """Wait for free devices and lock them until this process ends; exec keeps the locks.

    Args:
        count: number of devices.
        devices: devices to choose from.
        directory: directory of one lock file per device, the same for all jobs that share the devices.

    Raises:
        StudyError: there are fewer devices, or others can write to the directory.
    """
    if count > len(devices):
        remedy = "request fewer in the profile's resources"
        raise StudyError([f"--gpus {count}: only {len(devices)} available; {remedy}"])
    _make_own(directory)
    held = _held(count, devices, directory)
    if held is None:
        words = f"waiting for {count} of the GPUs {', '.join(devices)}"
        print(words, file=sys.stderr, flush=True)  # noqa: T201
    while held is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        held = _held(count, devices, directory)
    for lock in held.values():
        os.set_inheritable(lock, True)
    return list(held)


def _make_own(directory: Path) -> None:
    """Create a private directory: in /tmp another user may have created one, or a link, of that name."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True)
    found = directory.lstat()
    others = stat.S_IMODE(found.st_mode) & 0o077
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or others:
        about = "not a private directory of this user, so GPUs cannot be leased there"
        remedy = "remove it, or set TMPDIR to a directory of your own"
        raise StudyError([f"{directory}: {about}; {remedy}"])


def _held(count: int, devices: Sequence[str], directory: Path) -> dict[str, int] | None:
    """Lock exactly `count` devices or none: two jobs with half of their devices each would deadlock."""
    held: dict[str, int] = {}
    for device in devices:
        if len(held) == count:
            break
        name = f"{device.replace('/', '_')}.lock"
        lock = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            held[device] = lock
    if len(held) == count:
        return held
    for lock in held.values():
        os.close(lock)
    return None


def take_gpus(count: int) -> None:
    """Lease `count` GPUs for this job and hide all others from this process."""
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
