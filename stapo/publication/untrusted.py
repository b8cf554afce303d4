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
MAX_ITEMS, MAX_CHARACTERS, MAX_INTEGER = 1000, 20_000, 2**63
"""Limits for the lists, strings and numbers of a study before it is parsed."""
HOLES_BYTES = 2**30
"""Above this size, nearly empty sparse files are refused: reading them would take hours."""
FOOTER_BYTES = 2**20
CODECS = ("SNAPPY", "UNCOMPRESSED")
"""Compression codecs of score files. Others compress zeros a thousand times better."""


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
    if status.st_size > HOLES_BYTES and status.st_blocks * 512 < status.st_size / 100:
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
    irregularity = irregular(path.lstat())
    if irregularity:
        # Opening a device may already have side effects.
        raise RefusedError(f"{path.name}: {irregularity}")
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


def parquet_fault(path: Path, schema: pa.Schema, rows: int, limit: int) -> str | None:
    """Return why a parquet file must not be read, None if it may be.

    The footer is checked before any row is read.

    Args:
        path: the file.
        schema: expected columns, without nested types.
        rows: maximum number of rows.
        limit: maximum bytes of the file, and of a column's strings after decompression.
    """
    texts = [field.name for field in schema if field.type == pa.string()]
    with open_regular(path, FOOTER_BYTES + limit) as stream:
        try:
            # With dictionaries, a string that is repeated in a million rows is in memory once.
            file = pq.ParquetFile(
                stream,
                read_dictionary=texts,
                thrift_string_size_limit=FOOTER_BYTES,
                thrift_container_size_limit=2**16,
            )
        except (pa.ArrowException, OSError) as error:
            return f"truncated or corrupt: {(str(error).splitlines() or [repr(error)])[0]}"
        except KeyError:
            return f"other columns than {', '.join(schema.names)}"
        found, about = file.schema_arrow, file.metadata
        plain = [(f.name, pa.string() if f.name in texts else f.type) for f in found]
        if plain != [(field.name, field.type) for field in schema]:
            return f"other columns or types than {', '.join(schema.names)}"
        if about.num_rows > rows:
            return f"has {about.num_rows} rows, expected {rows}"
        for index in range(about.num_row_groups):
            group = about.row_group(index)
            for number in range(group.num_columns):
                codec = group.column(number).compression
                if codec not in CODECS:
                    return f"is compressed with {codec}, which is not used in score files"
        for name in texts:
            column = file.read(columns=[name], use_threads=False).column(0)
            total = sum(
                pc.sum(pc.binary_length(part.dictionary).take(part.indices)).as_py() or 0
                for part in column.chunks
            )
            if total > limit:
                return f"column {name} unpacks to {total} bytes, more than {limit}"
        return None


def read_parquet(path: Path, schema: pa.Schema, rows: int, limit: int, unpacked: int) -> pa.Table:
    """Return the table of a parquet file that may be compressed with zstd and have lists.

    Columns are read one after another, texts as dictionaries, so that a text which is repeated in a million
    rows is in memory once. A page of a forged file unpacks to 2 GiB at most.

    Args:
        path: the file.
        schema: expected columns.
        rows: maximum number of rows.
        limit: maximum bytes of the file.
        unpacked: maximum bytes of a column after decompression.

    Raises:
        RefusedError: it has other columns, or exceeds a limit.
    """
    columns = []
    with open_regular(path, limit) as stream:
        try:
            file = pq.ParquetFile(
                stream,
                read_dictionary=[_leaf(field) for field in schema if _leaf(field)],
                thrift_string_size_limit=FOOTER_BYTES,
                thrift_container_size_limit=2**16,
            )
            about, names = file.metadata, file.schema_arrow.names
            if names != schema.names:
                raise RefusedError(f"other columns than {', '.join(schema.names)}")
            if about.num_rows > rows:
                raise RefusedError(f"has {about.num_rows} rows, at most {rows} are expected")
            for field, found_field in zip(schema, file.schema_arrow, strict=True):
                if _without_dictionary(found_field.type) != field.type:
                    raise RefusedError(
                        f"column {field.name} is of type {str(found_field.type)[:40]}"
                    )
                parts = file.read(columns=[field.name], use_threads=False).column(0)
                if (found := _unpacked_bytes(parts)) > unpacked:
                    raise RefusedError(f"column {field.name} unpacks to {found} bytes")
                columns.append(parts.cast(field.type))
        except (pa.ArrowException, OSError, KeyError) as error:
            reason = (str(error).splitlines() or [repr(error)])[0]
            raise RefusedError(f"truncated or corrupt: {reason}") from error
        # Metadata of pandas could make a column the index.
        metadata = {k: v for k, v in (file.schema_arrow.metadata or {}).items() if k != b"pandas"}
    try:
        table = pa.Table.from_arrays(columns, schema=schema)
        table.validate(full=True)
    except pa.ArrowException as error:
        raise RefusedError(f"other types than expected: {str(error).splitlines()[0]}") from error
    for field, column in zip(schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise RefusedError(f"column {field.name} has nulls")
    return table.replace_schema_metadata(metadata)


def _leaf(field: pa.Field) -> str | None:
    """Return the path of the texts of a column, None for one of numbers."""
    if field.type == pa.string():
        return str(field.name)
    return f"{field.name}.list.element" if field.type == pa.list_(pa.string()) else None


def _without_dictionary(found: pa.DataType) -> pa.DataType:
    """Return the type of a column whose texts were not read as dictionaries."""
    if pa.types.is_list(found):
        return pa.list_(_without_dictionary(found.value_type))
    return found.value_type if pa.types.is_dictionary(found) else found


def _unpacked_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column whose texts are dictionaries, as if they were not."""
    total = 0
    for part in column.chunks:
        flat = part.flatten() if pa.types.is_list(part.type) else part
        if pa.types.is_dictionary(flat.type):
            lengths = pc.binary_length(flat.dictionary).take(flat.indices)
            total += (pc.sum(lengths).as_py() or 0) + 4 * len(part)
        else:
            total += flat.nbytes
    return total


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file as hex digits."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while part := stream.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def require_modest(value: Any, depth: int = 0) -> None:
    """Check that an untrusted value is within the size limits of a study.

    Raises:
        RefusedError: it exceeds a limit.
    """
    if depth > MAX_DEPTH:
        raise RefusedError(f"the study is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict | list):
        if len(value) > MAX_ITEMS:
            raise RefusedError(f"the study has a list of {len(value)}; at most {MAX_ITEMS}")
        keys = list(value) if isinstance(value, dict) else []
        values = value.values() if isinstance(value, dict) else value
        for item in (*keys, *values):
            require_modest(item, depth + 1)
    elif isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise RefusedError(f"the study has a string of {len(value)} characters")
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise RefusedError("the study has an integer of more than 63 bits")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RefusedError("contains a key twice")
    return found


def _refuse(constant: str) -> Any:
    raise RefusedError(f"{constant} is not a JSON number")
