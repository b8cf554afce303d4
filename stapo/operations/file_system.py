"""Whether the storage does what a study relies on: room, locks, renames, clocks, shared memory."""

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
"""For NCCL and vLLM, our assumption: containers come with 64 MiB, which is too little."""
MAX_SKEW_SECONDS = 2.0
"""Between file system and host, our assumption; Snakemake compares times of files of several hosts."""
HOLD = """
import fcntl, sys
with open(sys.argv[1]) as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@dataclass(frozen=True)
class Check:
    """What was found, and what to do about it where that is not right."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


def disk(needed_bytes: int | None, root: Path = Path()) -> Iterator[Check]:
    """Look whether what a study writes fits; quotas are not seen."""
    free = sum(shutil.disk_usage(place).free for place in places(root))
    what = f"{free / 1e9:.1f} GB free for results/ and work/ (quotas not looked at)"
    if needed_bytes is None:
        yield Check("ok", f"{what}; how much is needed was not estimated")
    elif free < needed_bytes:
        remedy = "make space, or start where there is more"
        yield Check("error", f"{what}, about {needed_bytes / 1e9:.1f} GB needed", remedy)
    else:
        yield Check("ok", f"{what}, about {needed_bytes / 1e9:.1f} GB needed")


def file_system(directory: Path) -> Iterator[Check]:
    """Look whether locks exclude, renames replace and clocks agree in a directory, by trying."""
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
        yield Check("error", f"{where}: {error.strerror}", "start in a directory that is writable")
        return
    if not replaced:
        remedy = "use a POSIX file system"
        yield Check("error", f"{where}: a rename does not replace a file whole", remedy)
    if abs(skew) > MAX_SKEW_SECONDS:
        remedy = "set the clocks (NTP): Snakemake compares times of files, and would run jobs again"
        yield Check("warning", f"{where}: its clock is {skew:+.0f} s off this host's", remedy)
    elif replaced:
        yield Check("ok", f"{where}: renames replace, clocks agree")


def _locks(directory: Path, where: str) -> Iterator[Check]:
    path = directory / "lock"
    remedy = "mount it with locks (Lustre: -o flock, NFS: version 4), or set work/ on another one"
    try:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            child = subprocess.run(
                [sys.executable, "-I", "-c", HOLD, path], capture_output=True, check=False
            )
    except OSError as error:
        yield Check("error", f"{where}: no flock: {error.strerror}; no training starts", remedy)
        return
    if b"BlockingIOError" in child.stderr:
        yield Check("ok", f"{where}: flock excludes other processes (between hosts not tried)")
    else:
        what = f"{where}: flock does not exclude: never run a study twice at the same time"
        yield Check("warning", what, remedy)


def shared_memory(directory: Path = Path("/dev/shm")) -> Iterator[Check]:
    """Look whether there is enough of it for NCCL and vLLM, where there are GPUs."""
    import torch

    size = shutil.disk_usage(directory).total if directory.is_dir() else 0
    what = f"{directory}: {size / 2**30:.1f} GiB"
    if size < MIN_SHM_BYTES and torch.cuda.device_count():
        remedy = "give the container more: docker --shm-size=16g, apptainer has the host's"
        yield Check("warning", f"{what}, little for NCCL and vLLM", remedy)
    else:
        yield Check("ok", what)


def places(root: Path) -> list[Path]:
    """Return a directory for each file system that results and work are written to."""
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
