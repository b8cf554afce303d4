"""Leases of the GPUs of one machine: Snakemake counts GPUs but does not assign them to jobs."""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Sequence
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
        StudyError: there are fewer devices.
    """
    if count > len(devices):
        remedy = "request fewer in the profile's resources"
        raise StudyError([f"--gpus {count}: only {len(devices)} available; {remedy}"])
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
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
