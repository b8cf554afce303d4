"""Step checkpoints: written to a temporary directory, sealed, renamed; read only if complete and unchanged.

A kill at any moment leaves either the old checkpoint, or the old and the new one. The seal lists every file
with its SHA-256, and contains a checksum of itself. A checkpoint that was truncated or changed later (by a
full disk, an interrupted copy, a flipped bit), or that belongs to another run, is detected and skipped.

A checkpoint here is always a step checkpoint: the state from which a training resumes. Weights that are
evaluated are a `stapo.study.Checkpoint`.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stapo.files import fingerprint, sync
from stapo.provenance import file_sums

SEAL = "seal.json"
ASIDE = "writing"
OF_A_RANK = re.compile(r"(?:__|rng_state_)(\d+)")
"""Start of the names of files that each rank writes: its shards and its random state."""
STATES_PER_PARAMETER = 3
"""Number of values per parameter: the weight and the two moments of Adam."""


def step_checkpoints(directory: Path) -> list[Path]:
    """Return the step checkpoints of a directory, the newest last."""
    found = [path for path in directory.glob("checkpoint-*") if path.name[11:].isdigit()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def checksums_of_rank(directory: Path, rank: int, num_processes: int) -> dict[str, Any]:
    """Flush the files that a rank wrote to the disk and return their checksums.

    Each file is read once, by the rank that wrote it, whose page cache still contains it.
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
    """Write the seal of a checkpoint and flush it to the disk.

    Args:
        directory: a completely written checkpoint.
        identity: `fingerprint` of the run, `layout` of the states, `num_processes`.
        files: results of `checksums_of_rank` of all ranks together.
    """
    record = {**identity, "step": step_of(directory), "files": dict(files)}
    record["checksum"] = fingerprint(record)
    (directory / SEAL).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    for path in (directory / SEAL, *directory.rglob("*"), directory):
        if path.is_dir() or path.name == SEAL:
            sync(path)


def put_in_place(aside: Path, output: Path, keep: int | None) -> None:
    """Rename a sealed checkpoint into `output`, then remove all but the last `keep` checkpoints.

    Checkpoints of later steps were skipped when the run was resumed: they are neither counted nor removed.
    """
    target = output / aside.name
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside, target)
    sync(output)
    if keep:
        done = [one for one in step_checkpoints(output) if step_of(one) <= step_of(target)]
        for old in done[:-keep]:
            shutil.rmtree(old)


def newest_whole(
    directory: Path,
    identity: dict[str, Any],
    say: Callable[[str], None],
    before: int | None = None,
) -> Path | None:
    """Return the newest checkpoint from which a run can be resumed, None without one.

    Args:
        directory: directory with checkpoints `checkpoint-N`.
        identity: as for `seal`, of the run to resume.
        say: called with a line for each skipped checkpoint.
        before: step; its checkpoint and later ones are ignored.

    Raises:
        ValueError: a checkpoint of this run has a layout that this launch cannot read.
        OSError: a checkpoint cannot be read.
    """
    for checkpoint in reversed(step_checkpoints(directory)):
        if before is not None and step_of(checkpoint) >= before:
            continue
        fault = _fault(checkpoint, identity)
        if fault is None:
            return checkpoint
        say(f"{checkpoint}: skipped, {fault}")
    return None


def _fault(checkpoint: Path, identity: dict[str, Any]) -> str | None:
    """Return why a run cannot be resumed from a checkpoint, None if it can."""
    try:
        record = json.loads((checkpoint / SEAL).read_bytes().decode())
        checksum = record.pop("checksum")
        files, layout = record["files"], record["layout"]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "incomplete: it has no seal"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "truncated or corrupt: its seal is unreadable, or of an earlier version"
    if checksum != fingerprint(record):
        return "truncated or corrupt: its seal was changed"
    if (record["fingerprint"], record["step"]) != (identity["fingerprint"], step_of(checkpoint)):
        return "written by another run, or for another step"
    if layout != identity["layout"]:
        raise ValueError(
            f"{checkpoint}: written with {layout}, but this launch uses {identity['layout']}; use the launch "
            "configuration with which the training was started"
        )
    for name, stated in files.items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size != stated["bytes"]:
            return f"truncated or corrupt: {name} is missing or has another size"
    found = file_sums(checkpoint, files)
    changed = [name for name, stated in files.items() if found[name] != stated["sha256"]]
    return f"truncated or corrupt: {changed[0]} was changed" if changed else None
