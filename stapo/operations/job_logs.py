"""What running and failed jobs leave behind: locks and logs, read as they are found.

What is torn, strange or hostile counts as not there, and is no error of ours.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.locks import holders
from stapo.text import COLOURS, plain

SLURM_LOGS = ".snakemake/slurm_logs"
"""Where snakemake-executor-plugin-slurm 2.8 writes: `rule_NAME/WILDCARDS/JOB.log`."""
LOG_BYTES, LOG_LINES = 65536, 40
"""The end of a log in which an error is looked for."""
ERROR = re.compile(
    r"^stapo: |^[\w.]*(Error|Exception|Interrupt)\b|slurmstepd: error|\bCANCELLED\b|oom.kill|^Killed"
)
STARTED = re.compile(r"^configuration ([0-9a-f]{16})$", re.MULTILINE)
HEAD_BYTES = 4096
"""Of a log, in which its job names the configuration that it works for."""


@dataclass(frozen=True)
class Owner:
    """The process that took the lock of a work directory last."""

    host: str
    since: float
    """When it took it, seconds since 1970, as every time here."""
    holds: bool
    """Whether it holds it now, on this host."""


def owner_of(lock: Path) -> Owner | None:
    """Return who took a lock last; trying it ourselves could keep a starting job from it."""
    try:
        status = lock.stat()
    except OSError:
        return None
    words = text_of(lock)[-200:].split()
    host, pid = (plain(words[0]), words[1]) if len(words) == 2 else ("", "")
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    # Some file systems show one device in stat and another in /proc/locks.
    holds = any(on == device or str(by) == pid for by, on in holders(status.st_ino))
    return Owner(host, status.st_mtime, holds)


def logs_of(root: Path, output: str, rule: str, wildcards: str) -> list[Path]:
    """Return where the errors of a job may stand: its log, and what Slurm caught of it."""
    slurm = root / SLURM_LOGS / f"rule_{rule}" / wildcards.replace("/", "_")
    return [root / (re.sub(r"^results/", "logs/", output) + ".log"), *slurm.glob("*.log")]


def error_in(logs: Iterable[Path], since: float, made_by: str) -> str | None:
    """Return the line that says why a job failed, from the newest log since then that has one.

    Args:
        logs: where it may stand.
        since: older logs are not looked at.
        made_by: fingerprint of the job; a log that names another one is that of other settings.
    """
    for written, path in sorted(((modified(path), path) for path in logs), reverse=True):
        if written and written >= since and _of(path) in (None, made_by):
            # A progress bar writes over its line.
            text = COLOURS.sub("", text_of(path, LOG_BYTES))
            lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
            errors = [line for line in lines if line][-LOG_LINES:]
            errors = [line for line in errors if ERROR.search(line)]
            said = [line for line in errors if line.startswith("stapo: ")]
            if errors:
                return plain((said or errors)[-1])
    return None


def _of(log: Path) -> str | None:
    """Return the fingerprint that a job wrote at the beginning of its log."""
    with suppress(OSError), log.open("rb") as stream:
        named = STARTED.search(stream.read(HEAD_BYTES).decode(errors="replace"))
        return named[1] if named else None
    return None


def text_of(path: Path, last_bytes: int | None = None) -> str:
    """Return the text of a regular file, or its end; nothing where it cannot be read."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as stream:
                if last_bytes is not None:
                    stream.seek(max(path.stat().st_size - last_bytes, 0))
                return stream.read().decode(errors="replace")
    return ""


def modified(path: Path) -> float:
    """Return when a file was last written, 0.0 where there is none."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def number(value: Any) -> float | None:
    """Return an ordinary number, None for anything else."""
    ordinary = isinstance(value, int | float) and abs(value) < 1e300
    return float(value) if ordinary else None
