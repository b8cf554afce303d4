"""Checks of the storage that a study needs: free space, locks, renames, clocks, shared memory."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MIN_SHM_BYTES = 2**30
"""Shared memory for NCCL and vLLM, our assumption; the default of containers, 64 MiB, is too little."""
MAX_SKEW_SECONDS = 2.0
"""Difference of the clocks of file system and host, our assumption; Snakemake compares file times."""
HOLD = """
import fcntl, sys
with open(sys.argv[1]) as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@dataclass(frozen=True)
class Check:
    """Result of a check, with a remedy if there is a problem."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def disk(needed_bytes: int | None, root: Path = Path()) -> Iterator[Check]:
    """Check that there is enough free space for a study; quotas are not considered."""
    free = sum(shutil.disk_usage(place).free for place in places(root))
    what = f"{free / 1e9:.1f} GB free for results/ and work/ (quotas not checked)"
    if needed_bytes is None:
        yield Check("ok", f"{what}; needed space not estimated")
    elif free < needed_bytes:
        remedy = "free some space, or start in a directory on a larger disk"
        yield Check("error", f"{what}, about {needed_bytes / 1e9:.1f} GB needed", remedy)
    else:
        yield Check("ok", f"{what}, about {needed_bytes / 1e9:.1f} GB needed")


def file_system(directory: Path) -> Iterator[Check]:
    """Check by experiment that locks, renames and file times work in a directory."""
    kind = _file_system_type(directory)
    where = f"{directory.resolve()} ({kind})"
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".stapo-doctor-") as name:
            yield from _locks(Path(name), where)
            old, new = Path(name, "old"), Path(name, "new")
            old.write_text("old")
            new.write_text("new")
            with old.open() as reader:
                os.replace(new, old)
                replaced = (reader.read(), old.read_text(), new.exists()) == ("old", "new", False)
            skew = old.stat().st_mtime - time.time()
    except OSError as error:
        yield Check("error", f"{where}: {error.strerror}", "start in a writable directory")
        return
    if not replaced:
        remedy = "use a POSIX file system"
        yield Check("error", f"{where}: a rename does not replace the old file completely", remedy)
    if abs(skew) > MAX_SKEW_SECONDS:
        remedy = "synchronize the clocks (NTP): Snakemake compares file times and would rerun jobs"
        yield Check("warning", f"{where}: clock differs from this host's by {skew:+.0f} s", remedy)
    elif replaced:
        yield Check("ok", f"{where}: renames and clocks work")


def _locks(directory: Path, where: str) -> Iterator[Check]:
    path = directory / "lock"
    remedy = "mount it with locks (Lustre: -o flock, NFS: version 4), or move work/ to another one"
    try:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            child = subprocess.run(
                [sys.executable, "-I", "-c", HOLD, path], capture_output=True, check=False
            )
    except OSError as error:
        what = f"{where}: flock fails ({error.strerror}); trainings cannot start"
        yield Check("error", what, remedy)
        return
    if b"BlockingIOError" in child.stderr:
        yield Check("ok", f"{where}: flock works between processes (not tested between hosts)")
    else:
        what = f"{where}: flock has no effect; do not run a study twice at the same time"
        yield Check("warning", what, remedy)


def shared_memory(directory: Path = Path("/dev/shm")) -> Iterator[Check]:
    """Check that there is enough shared memory for NCCL and vLLM, if there are GPUs."""
    import torch

    size = shutil.disk_usage(directory).total if directory.is_dir() else 0
    what = f"{directory}: {size / 2**30:.1f} GiB"
    if size < MIN_SHM_BYTES and torch.cuda.device_count():
        remedy = "give the container more: docker --shm-size=16g; apptainer uses the host's"
        yield Check("warning", f"{what}, too little for NCCL and vLLM", remedy)
    else:
        yield Check("ok", what)


def places(root: Path) -> list[Path]:
    """Return one directory on each file system that results/ and work/ are on."""
    paths = [root / name if (root / name).is_dir() else root for name in ("results", "work")]
    return list({path.stat().st_dev: path for path in paths}.values())


def _file_system_type(directory: Path) -> str:
    """Return the type of the file system of a directory, such as ext4, nfs4 or lustre."""
    path, best, kind = directory.resolve(), "", "unknown"
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        _, escaped, found, *_ = line.split()
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), escaped)
        if path.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind
