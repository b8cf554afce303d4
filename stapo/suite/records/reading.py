"""Reading of untrusted records: JSON by the types of a dataclass, Parquet by its columns."""

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from stapo.core.files import AGAIN, DamagedFileError, open_file

T = TypeVar("T")
_adapter: Any = cache(TypeAdapter)


def record_of(kind: type[T], text: str | bytes) -> T:
    """Return the record in a JSON text. Types are strict: no bool is an int, no number a string.

    Raises:
        ValueError: not JSON, a field is missing or has another type, or a check of the record fails.
    """
    try:
        record: T = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error
    return record


def read_table(path: Path, schema: pa.Schema, or_else: pa.Schema | None = None) -> pa.Table:
    """Return a table of exactly these columns, or those.

    Raises:
        DamagedFileError: the file is truncated or corrupt, or has other columns.
        FileNotFoundError: there is no such file.
    """
    try:
        # Not a data set: a directory such as q=0.75 in the path is no column.
        with open_file(path) as stream:
            table = pq.ParquetFile(stream, page_checksum_verification=True).read()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{path}: truncated or corrupt; {AGAIN}") from error
    if not any(table.schema.equals(expected) for expected in (schema, or_else or schema)):
        raise DamagedFileError(f"{path}: not the columns of this version; {AGAIN}")
    return table
