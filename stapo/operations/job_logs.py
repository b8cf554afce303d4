"""Reading the locks and logs of running and failed jobs.

Files that are truncated, corrupt or malicious are treated as missing, and never raise an error.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.files import text_of
from stapo.locks import holders
from stapo.text import COLOURS, plain

SLURM_LOGS = ".snakemake/slurm_logs"
"""Log directory of snakemake-executor-plugin-slurm."""
LOG_BYTES, LOG_LINES = 65536, 40
"""Size of the end of a log in which errors are searched."""
ERROR = re.compile(
    r"^stapo: |^(\[rank\d+\]: )?[\w.]*(Error|Exception|Interrupt)\b|"
    r"slurmstepd: error|\bCANCELLED\b|oom.kill|^Killed"
)
RANKS_FAILED = "ChildFailedError:"
"""Of the launcher of several ranks, before a report with some lines for each of them and no reason."""
REPORT = re.compile(rf"(?<={RANKS_FAILED}).*?^=+$.*?^=+$", re.MULTILINE | re.DOTALL)
STARTED = re.compile(r"^configuration ([0-9a-f]{16})$", re.MULTILINE)
"""Line that a job writes when it starts, with its fingerprint."""
HEAD_BYTES = 16384
"""Size of the start of a log in which that line is searched; Snakemake writes before it on a cluster."""


@dataclass(frozen=True)
class Owner:
    """The last process that locked a work directory."""

    host: str
    since: float
    """Time of the locking in seconds since 1970, like all times here."""
    holds: bool
    """Whether the process still holds the lock, on this host."""


def owner_of(lock: Path) -> Owner | None:
    """Return the last owner of a lock, without locking it, which could block a starting job."""
    try:
        status = lock.stat()
    except OSError:
        return None
    words = text_of(lock)[-200:].split()
    host, pid = (plain(words[0]), words[1]) if len(words) == 2 else ("", "")
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    # On some file systems, stat and /proc/locks show different devices.
    holds = any(on == device or str(by) == pid for by, on in holders(status.st_ino))
    return Owner(host, status.st_mtime, holds)


def logs_of(root: Path, study: str) -> dict[str, Path]:
    """Return fingerprint -> newest log of the job that has it: those of the study, and Slurm's."""
    found: dict[str, Path] = {}
    logs = [p for d in (root / "logs" / study, root / SLURM_LOGS) for p in d.rglob("*.log")]
    for path in sorted(logs, key=modified):
        with suppress(OSError), path.open("rb") as stream:
            for made_by in STARTED.findall(stream.read(HEAD_BYTES).decode(errors="replace")):
                found[made_by] = path
    return found


def error_in(log: Path | None, since: float) -> str | None:
    """Return the line with the reason why a job failed; None without one, or in a log older than `since`."""
    if log is None or modified(log) < since:
        return None
    # A progress bar separates its states by carriage returns.
    text = REPORT.sub("", COLOURS.sub("", text_of(log, LOG_BYTES)))
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    errors = [line for line in lines if line][-LOG_LINES:]
    errors = [line for line in errors if ERROR.search(line)]
    if not errors:
        return None
    said = [line for line in errors if line.startswith("stapo: ")]
    # After one rank has failed, others say that they lost it, and the launcher that all ended.
    own = [line for line in errors if RANKS_FAILED not in line]
    return plain((said[:1] or own[-1:] or errors)[0])


def modified(path: Path) -> float:
    """Return the modification time of a file, 0.0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def number(value: Any) -> float | None:
    """Return a value as a float if it is a number below 1e300 in size, None otherwise."""
    ordinary = isinstance(value, int | float) and abs(value) < 1e300
    return float(value) if ordinary else None
