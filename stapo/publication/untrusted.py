"""Reading of untrusted files: only regular files, and only up to a limit.

A downloaded folder may contain devices, FIFOs, links, sparse files and files that unpack to many times
their size. Refused files are never opened, or never read completely.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

JSON_BYTES = 8 * 2**20
"""Size limit of a JSON document or line; as Python objects it needs about twenty times as much memory."""
MAX_ENTRIES = 200_000
MAX_DEPTH = 12
FOOTER_BYTES = 2**20
"""Maximum size of the metadata of a parquet file."""


class RefusedError(ValueError):
    """A file is not read; the message says why."""


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield relative path and status of every entry of a folder except directories, following no links.

    Raises:
        RefusedError: there are more entries or deeper directories than in any study.
    """
    pending, seen = [("", 0)], 0
    while pending:
        inside, depth = pending.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                seen += 1
                path = f"{inside}/{entry.name}" if inside else entry.name
                if seen > MAX_ENTRIES or depth >= MAX_DEPTH:
                    raise RefusedError(
                        f"{path[:80]}: more than {MAX_ENTRIES} files, or more than {MAX_DEPTH} "
                        "directories deep; no study has this many"
                    )
                if entry.is_dir(follow_symlinks=False):
                    pending.append((path, depth + 1))
                else:
                    yield path, entry.stat(follow_symlinks=False)


def irregular(status: os.stat_result) -> str | None:
    """Return why an entry must not be read, None for an ordinary file."""
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file but a device, FIFO or socket"
    if status.st_size > 2**30 and status.st_blocks * 512 < status.st_size / 100:
        return f"is a sparse file of {status.st_size} bytes, which are nearly all holes"
    return None


def open_regular(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        RefusedError: it is not a regular file, or longer than the limit.
    """
    # Without O_NONBLOCK, opening a FIFO that has replaced the file would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    fault = irregular(status)
    if fault is None and limit is not None and status.st_size > limit:
        fault = f"has {status.st_size} bytes, more than the limit of {limit}"
    if fault:
        stream.close()
        raise RefusedError(f"{path.name}: {fault}")
    return stream


def read_text(path: Path, limit: int) -> str:
    """Return the text of a regular file.

    Raises:
        RefusedError: it is not a regular file, or longer than the limit.
        UnicodeDecodeError: it is not UTF-8.
    """
    if fault := irregular(path.lstat()):
        raise RefusedError(f"{path.name}: {fault}")  # Opening a device may have side effects.
    with open_regular(path, limit) as stream:
        return stream.read(limit).decode()


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON document without duplicate keys, NaN or Infinity.

    Raises:
        ValueError: it is not such a document, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError as error:
        raise RefusedError("nested too deeply") from error


def read_json(path: Path, limit: int = JSON_BYTES) -> Any:
    """Return the value of a JSON file, read by `read_text` and parsed by `parse_json`."""
    return parse_json(read_text(path, limit))


def json_lines(path: Path, line_bytes: int, lines: int) -> Iterator[Any]:
    """Yield the records of a JSON Lines file one after another.

    Raises:
        RefusedError: there are too many lines, or a line is too long, has no line end or is not JSON.
    """
    for number, line in enumerate(raw_lines(path, line_bytes, lines), 1):
        try:
            yield parse_json(line.decode())
        except ValueError as error:
            raise RefusedError(f"line {number}: {error}") from error


def raw_lines(path: Path, line_bytes: int, lines: int) -> Iterator[bytes]:
    """Yield the lines of a file with the limits of `json_lines`, without parsing them."""
    with open_regular(path) as stream:
        for number in range(1, lines + 2):
            line = stream.readline(line_bytes + 1)
            if not line:
                return
            if number > lines:
                raise RefusedError(f"more than {lines} lines")
            if not line.endswith(b"\n"):
                raise RefusedError(f"line {number}: truncated, or longer than {line_bytes} bytes")
            yield line


def read_parquet(path: Path, schema: pa.Schema, rows: int, limit: int, unpacked: int) -> pa.Table:
    """Return the table of a parquet file.

    Columns are read one after another, texts as dictionaries, so that a text which is repeated in a million
    rows is in memory once. A page of a hostile file unpacks to 2 GiB at most.

    Args:
        path: the file.
        schema: expected columns.
        rows: maximum number of rows.
        limit: maximum bytes of the file.
        unpacked: maximum bytes of a column after decompression.

    Raises:
        RefusedError: it has other columns, or exceeds a limit.
    """
    # Path of the texts of a column.
    texts = {pa.string(): "{}", pa.list_(pa.string()): "{}.list.element"}
    with open_regular(path, limit) as stream:
        try:
            file = pq.ParquetFile(
                stream,
                read_dictionary=[texts[f.type].format(f.name) for f in schema if f.type in texts],
                thrift_string_size_limit=FOOTER_BYTES,
                thrift_container_size_limit=2**16,
            )
            if file.schema_arrow.names != schema.names:
                raise RefusedError(f"other columns than {', '.join(schema.names)}")
            if (found := file.metadata.num_rows) > rows:
                raise RefusedError(f"has {found} rows, at most {rows} are expected")
            columns = [_column(file, field, unpacked) for field in schema]
            table = pa.Table.from_arrays(columns, schema=schema)
            table.validate(full=True)
        except KeyError as error:
            raise RefusedError(f"other columns than {', '.join(schema.names)}") from error
        except (pa.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [repr(error)])[0]
            raise RefusedError(f"truncated or corrupt: {reason}") from error
    # Metadata of pandas could make a column the index.
    metadata = {k: v for k, v in (file.schema_arrow.metadata or {}).items() if k != b"pandas"}
    return table.replace_schema_metadata(metadata)


def _column(file: pq.ParquetFile, field: pa.Field, unpacked: int) -> pa.ChunkedArray:
    """Return a column that has the type of a field, and no nulls if the field allows none."""
    kind, found = file.schema_arrow.field(field.name).type, 0
    is_list = pa.types.is_list(kind)
    inner = kind.value_type if is_list else kind
    inner = inner.value_type if pa.types.is_dictionary(inner) else inner
    if (pa.list_(inner) if is_list else inner) != field.type:
        raise RefusedError(f"column {field.name} is of type {str(kind)[:40]}")
    column = file.read(columns=[field.name], use_threads=False).column(0)
    for part in (chunk.flatten() if is_list else chunk for chunk in column.chunks):
        found += part.nbytes
        if pa.types.is_dictionary(part.type):  # As if every row had its own text.
            found += pc.sum(pc.binary_length(part.dictionary).take(part.indices)).as_py() or 0
    if found > unpacked:
        raise RefusedError(f"column {field.name} unpacks to {found} bytes")
    if not field.nullable and column.null_count:
        raise RefusedError(f"column {field.name} has nulls")
    return column.cast(field.type)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file as hex digits."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while part := stream.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RefusedError("contains a key twice")
    return found


def _refuse(constant: str) -> Any:
    raise RefusedError(f"{constant} is not a JSON number")
