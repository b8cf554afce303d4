"""How files are written so that a kill at any time loses nothing, and how they are read.

Published files and directories are written atomically, by one rename; logs of steps are append-only. What is
truncated or corrupt is never taken for what it was.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class DamagedFileError(ValueError):
    """A file is truncated, corrupt or not what it should be: place, cause and remedy, one line each."""


AGAIN = "remove it and run snakemake again, which writes it again"
"""Remedy for a damaged file that the pipeline published."""


@contextmanager
def replace_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open(mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a directory beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    # One process at a time publishes a directory: what a kill left of an earlier attempt may go.
    for left in path.parent.glob(f".{path.name}.*"):
        if left.suffix[1:].isdigit():
            shutil.rmtree(left, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        for written in sorted(aside.rglob("*")):
            sync(written)
        if path.exists():
            shutil.rmtree(path)
        aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def link_or_copy(source: str, target: str) -> None:
    """Give a finished file a second name; across file systems a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON with sorted keys, by one rename."""
    with replace_file(path) as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str = AGAIN) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Raises:
        DamagedFileError: it holds none.
        OSError: it cannot be read.
    """
    found = _mapping(path.read_bytes())
    if found is None:
        raise DamagedFileError(f"{path}: truncated or corrupt, not a JSON mapping; {remedy}")
    return found


def _mapping(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line, after removing what a kill or a full disk left of an unfinished one."""
    with path.open("a+b") as stream:
        stream.truncate(_end_of_lines(stream))
        stream.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def _end_of_lines(stream: IO[bytes]) -> int:
    """Return the position behind the last line end; only the last byte is read where it is one."""
    start, block = stream.seek(0, os.SEEK_END), 1
    while start > 0:
        stop, start = start, max(start - block, 0)
        stream.seek(start)
        found = stream.read(stop - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        block = 2**16
    return 0


def scan_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield number and record of every finished line, None for one that is not a JSON mapping."""
    data = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        yield number, _mapping(line)


def read_jsonl(path: Path, remedy: str = AGAIN) -> list[dict[str, Any]]:
    """Return the records of a log; a last line without line end was never finished.

    Raises:
        DamagedFileError: another line is not JSON.
    """
    records = []
    for number, record in scan_jsonl(path):
        if record is None:
            raise DamagedFileError(f"{path}:{number}: truncated or corrupt, not JSON; {remedy}")
        records.append(record)
    return records


def read_published(
    path: Path, fields: Iterable[str] = (), remedy: str = AGAIN
) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines that was written atomically: every line is whole.

    Args:
        path: the file; one that does not exist has no records.
        fields: what every record has.
        remedy: said where it is damaged.

    Raises:
        DamagedFileError: a line is not JSON or lacks a field, or the last one has no end.
    """
    records = read_jsonl(path, remedy)
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        raise DamagedFileError(
            f"{path}:{len(records) + 1}: truncated, the last line has no end; {remedy}"
        )
    for number, record in enumerate(records, start=1):
        if missing := [name for name in fields if name not in record]:
            raise DamagedFileError(f"{path}:{number}: no {', '.join(missing)}; {remedy}")
    return records


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """Write all records atomically."""
    with replace_file(path) as stream:
        stream.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)
