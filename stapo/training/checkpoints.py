"""Step checkpoints: written aside, sealed, renamed; read only when whole and of this run.

A kill at any moment leaves either the old checkpoint or the old and the new one. The seal lists every
file with its SHA-256, and has one itself, so that a checkpoint that was truncated or changed later (a full
disk, a copy that broke off, a flipped bit) or that belongs to another run is recognised and skipped.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stapo.canonical import fingerprint
from stapo.files import sync
from stapo.provenance import file_sums

SEAL = "seal.json"
ASIDE = "writing"
OF_A_RANK = re.compile(r"(?:__|rng_state_)(\d+)")
"""How the names of files begin that one rank of several writes: its shards, its random state."""
STATES_PER_PARAMETER = 3
"""Weights and the two moments of Adam."""


def checkpoints(directory: Path) -> list[Path]:
    """Return the step checkpoints of a directory, the newest last."""
    found = [path for path in directory.glob("checkpoint-*") if path.name[11:].isdigit()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return after which optimiser step a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def require_space(directory: Path, num_bytes: int) -> None:
    """Check that a checkpoint fits before any of it is written.

    Raises:
        OSError: too little space; what is there stays whole.
    """
    free = shutil.disk_usage(directory).free
    if free < num_bytes:
        raise OSError(
            errno.ENOSPC,
            f"a checkpoint needs {num_bytes / 1e9:.2f} GB and {free / 1e9:.2f} GB are free; the last one is "
            "whole: make some space and run the same command again, it continues",
            str(directory),
        )


class UnreadableCheckpointError(RuntimeError):
    """A checkpoint is whole but cannot be loaded; raised on all ranks alike."""


def checksums_of_rank(directory: Path, rank: int, num_processes: int) -> dict[str, Any]:
    """Bring the files that a rank wrote to the disk and return their checksums.

    Each file is read once, by the rank that wrote it and still has it in memory.
    """
    names = []
    for path in sorted(directory.rglob("*")):
        of_a_rank = OF_A_RANK.match(path.name)
        owner = int(of_a_rank[1]) % num_processes if of_a_rank else 0
        if path.is_file() and owner == rank:
            sync(path)
            names.append(path.relative_to(directory).as_posix())
    return {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha}
        for name, sha in file_sums(directory, names).items()
    }


def seal(directory: Path, identity: dict[str, Any], files: Mapping[str, Any]) -> None:
    """Write down what belongs to a checkpoint, and bring that to the disk.

    Args:
        directory: a checkpoint that is written completely.
        identity: `fingerprint` of the run, `layout` of the states, `num_processes`.
        files: as `checksums_of_rank`, of all ranks.
    """
    record = {**identity, "step": step_of(directory), "files": dict(files)}
    record["checksum"] = fingerprint(record)
    (directory / SEAL).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    for path in (directory / SEAL, *directory.rglob("*"), directory):
        if path.is_dir() or path.name == SEAL:
            sync(path)


def put_in_place(aside: Path, output: Path, keep: int | None) -> None:
    """Rename a sealed checkpoint into `output`; only then remove all but the last `keep`.

    Later steps are checkpoints that were skipped: they do not count as the last ones.
    """
    target = output / aside.name
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
    sync(output)
    if keep:
        done = [one for one in checkpoints(output) if step_of(one) <= step_of(target)]
        for old in done[:-keep]:
            shutil.rmtree(old)


def newest_whole(
    directory: Path,
    identity: dict[str, Any],
    say: Callable[[str], None],
    before: int | None = None,
) -> Path | None:
    """Return the newest checkpoint that can be continued from, or None.

    Args:
        directory: with `checkpoint-N` in it.
        identity: as for `seal`, of the run that wants to continue.
        say: called with one line for each checkpoint that is skipped, with the reason.
        before: a step; its checkpoint and later ones are not looked at.

    Raises:
        ValueError: the run's own checkpoint, but in a layout that this launch cannot read.
        OSError: a checkpoint that this user may not read, or the machine cannot read now.
    """
    for checkpoint in reversed(checkpoints(directory)):
        if before is not None and step_of(checkpoint) >= before:
            continue
        fault = _fault(checkpoint, identity)
        if fault is None:
            return checkpoint
        say(f"{checkpoint}: skipped, {fault}")
    return None


def _fault(checkpoint: Path, identity: dict[str, Any]) -> str | None:
    """Return why a checkpoint cannot be continued from, None where it can."""
    try:
        record = json.loads((checkpoint / SEAL).read_bytes().decode())
        checksum = record.pop("checksum")
        files, layout = record["files"], record["layout"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "incomplete: it has no seal"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "truncated or corrupt: its seal is unreadable, or of an earlier version"
    if checksum != fingerprint(record):
        return "truncated or corrupt: its seal is not what was written"
    if (record["fingerprint"], record["step"]) != (identity["fingerprint"], step_of(checkpoint)):
        return "foreign: another run wrote it"
    if layout != identity["layout"]:
        raise ValueError(
            f"{checkpoint}: written under {layout}, this launch is {identity['layout']}; start it with the "
            "configuration that it was started with"
        )
    for name, stated in files.items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != stated["bytes"]:
            return f"truncated or corrupt: {name} is missing or not as long as it was"
    try:
        found = file_sums(checkpoint, files)
    except OSError as error:
        if error.errno != errno.EIO:  # Not the checkpoint's: no permission, no descriptors left.
            raise
        return f"truncated or corrupt: {error.filename or checkpoint}: {error.strerror}"
    changed = [name for name, stated in files.items() if found[name] != stated["sha256"]]
    return f"truncated or corrupt: {changed[0]} is not what was written" if changed else None
