"""Step checkpoints: written aside, sealed, renamed; read only when whole and of this run.

A kill at any moment leaves either the old checkpoint or the old and the new one. The seal lists every
file with its size, so that a checkpoint that was torn later (a full disk, a copy that broke off) or that
belongs to another run is recognised and passed over.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEAL = "seal.json"
ASIDE = "writing"
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


def seal(directory: Path, identity: dict[str, Any]) -> None:
    """Bring every file to the disk and write down what belongs to the checkpoint.

    Args:
        directory: a checkpoint that is written completely.
        identity: `fingerprint` of the run, `layout` of the states, `num_processes`.
    """
    sizes = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            _sync(path)
            sizes[str(path.relative_to(directory))] = path.stat().st_size
    record = {**identity, "step": step_of(directory), "files": sizes}
    (directory / SEAL).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    _sync(directory / SEAL)
    _sync(directory)


def publish(aside: Path, output: Path, keep: int | None) -> None:
    """Rename a sealed checkpoint into `output`; only then remove all but the last `keep`."""
    target = output / aside.name
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
    _sync(output)
    if keep:
        for old in checkpoints(output)[:-keep]:
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
        say: told one line for each checkpoint that is passed over, and why.
        before: a step that must be done again; checkpoints from then on are passed over.

    Raises:
        ValueError: the run's own checkpoint, but in a layout that this launch cannot read.
    """
    for checkpoint in reversed(checkpoints(directory)):
        late = before is not None and step_of(checkpoint) >= before
        fault = f"step {before} must be done again" if late else _fault(checkpoint, identity)
        if fault is None:
            return checkpoint
        say(f"{checkpoint}: passed over, {fault}")
    return None


def _fault(checkpoint: Path, identity: dict[str, Any]) -> str | None:
    try:
        record = json.loads((checkpoint / SEAL).read_text())
        files, layout = record["files"], record["layout"]
    except (OSError, ValueError, KeyError, TypeError):
        return "torn: it has no seal"
    if record.get("fingerprint") != identity["fingerprint"] or record.get("step") != step_of(
        checkpoint
    ):
        return "foreign: another run wrote it"
    for name, size in files.items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != size:
            return f"torn: {name} is missing or not as long as it was"
    if layout != identity["layout"]:
        raise ValueError(
            f"{checkpoint}: written under {layout}, this launch is {identity['layout']}; start it with the "
            "configuration that it was started with"
        )
    return None


def _sync(path: Path) -> None:
    """Wait until a file or a directory's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
