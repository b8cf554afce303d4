"""Reading files, writing them so that a kill at any time loses nothing, and fingerprints of values.

Published files and directories are written atomically, by one rename; logs of steps are append-only.
Reading raises DamagedFileError where a file is truncated, corrupt, or of another kind (a FIFO would block),
and OSError where it cannot be read.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any


class DamagedFileError(ValueError):
    """A file is truncated, corrupt or invalid; the message is one line with place, cause and remedy."""


MOST_BYTES = 2**32
"""Of a file that is read at once; a sparse one takes none of them from the disk."""
AGAIN = "remove it and run snakemake again, which writes it again"
"""Remedy for a damaged file that the pipeline published."""
LEAST_SECONDS = 180.0
"""Between two step checkpoints; a kill loses about this at most."""
MOST_SHARE = 1 / 30
"""Of the time of a training that is spent on checkpoints; if one takes long, they are further apart."""


def checkpoint_interval(saving: float) -> float:
    """Return the seconds between checkpoints of which one takes `saving` seconds."""
    return max(LEAST_SECONDS, saving / MOST_SHARE)


@contextmanager
def replace_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open(mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write(path: Path, content: str | bytes) -> Path:
    """Write a file atomically, and return its path."""
    with replace_file(path, "w" if isinstance(content, str) else "wb") as stream:
        stream.write(content)
    return path


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replace_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside, old = (path.with_name(f".{path.name}.{os.getpid()}{end}") for end in ("", ".old"))
    # Only one process at a time publishes a directory, so the rest of a killed attempt can be removed.
    for left in path.parent.glob(f".{path.name}.*"):
        if left.suffix == ".old" and not path.exists():
            left.rename(path)
        elif left.suffix == ".old" or left.suffix[1:].isdigit():
            shutil.rmtree(left, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        for written in sorted(aside.rglob("*")):
            sync(written)
        if path.exists():
            path.rename(old)
        aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def link_or_copy(source: str, target: str) -> None:
    """Create a hard link to a finished file, or a copy of it on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def link_tree(source: Path, target: Path) -> None:
    """Replace a directory by hard links to the files of another one."""
    with replace_directory(target) as aside:
        shutil.copytree(source, aside, dirs_exist_ok=True, copy_function=link_or_copy)


def write_json(path: Path, value: Any) -> None:
    """Write a value atomically as indented JSON with sorted keys."""
    write(path, json_text(value))


def canonical(value: Any) -> str:
    """Return a value as canonical JSON: sorted keys, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return 16 hex digits of the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def json_text(value: Any) -> str:
    """Return what `write_json` writes."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading."""
    # Without waiting for a writer of a FIFO.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(f"{path}: not a regular file; remove it")
    return os.fdopen(descriptor, "rb")


def content_of(path: Path) -> bytes:
    """Return the content of a regular file."""
    with open_file(path) as stream:
        if (size := os.fstat(stream.fileno()).st_size) > MOST_BYTES:
            raise DamagedFileError(f"{path}: {size:,} bytes, more than {MOST_BYTES:,}; remove it")
        return stream.read()


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping of a JSON file."""
    mapping = _mapping(content_of(path))
    if mapping is None:
        raise DamagedFileError(f"{path}: truncated or corrupt, not a JSON mapping; {AGAIN}")
    return mapping


def json_of(path: Path) -> dict[str, Any]:
    """Return the mapping of a JSON file; empty if it cannot be read."""
    with suppress(OSError, DamagedFileError):
        return _mapping(content_of(path)) or {}
    return {}


def _mapping(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(path: Path, last_bytes: int | None = None) -> str:
    """Return the text of a regular file, or its end; empty if it cannot be read."""
    with suppress(OSError, DamagedFileError):
        if last_bytes is None:
            return content_of(path).decode(errors="replace")
        with open_file(path) as stream:
            stream.seek(max(path.stat().st_size - last_bytes, 0))
            return stream.read().decode(errors="replace")
    return ""


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line, after removing an incomplete last line left by a kill or a full disk."""
    with path.open("a+b") as stream:
        stream.truncate(_end_of_lines(stream))
        stream.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def _end_of_lines(stream: IO[bytes]) -> int:
    """Return the position after the last line end; only if that is not the last byte, all are read."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(max(end - 1, 0))
    if stream.read() in (b"\n", b""):
        return end
    stream.seek(0)
    return stream.read().rfind(b"\n") + 1


def read_jsonl(path: Path, remedy: str = AGAIN) -> list[dict[str, Any]]:
    """Return the records of a log, without a last line that has no line end, which is incomplete."""
    records = []
    data = content_of(path) if path.exists() else b""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        record = _mapping(line)
        if record is None:
            raise DamagedFileError(f"{path}:{number}: truncated or corrupt, not JSON; {remedy}")
        records.append(record)
    return records


def read_published(path: Path, fields: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines that was written atomically; a missing file has none."""
    records = read_jsonl(path)
    if path.exists() and (data := content_of(path)) and not data.endswith(b"\n"):
        raise DamagedFileError(
            f"{path}:{len(records) + 1}: truncated, the last line has no line end; {AGAIN}"
        )
    for number, record in enumerate(records, start=1):
        if missing := [name for name in fields if name not in record]:
            raise DamagedFileError(f"{path}:{number}: no {', '.join(missing)}; {AGAIN}")
    return records


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    """Write all records atomically."""
    with replace_file(path) as stream:
        stream.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)
