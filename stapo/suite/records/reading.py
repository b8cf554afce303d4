"""Reading of untrusted records: JSON by the types of a dataclass, Parquet by its columns."""

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from stapo.core.files import AGAIN, DamagedFileError, open_file

T = TypeVar("T")
MOST_TABLE_BYTES = 2**33
"""Of a table in memory; our choice, far above token records, which a study limits (`token_records_mb`)."""
NUMBER_BYTES = 8
"""Of a number, at most."""
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
        DamagedFileError: the file is truncated or corrupt, has other columns, or would fill the memory.
        FileNotFoundError: there is no such file.
    """
    try:
        # Not a data set: a directory such as q=0.75 in the path is no column.
        with open_file(path) as stream:
            file = pq.ParquetFile(stream)
            known = file.schema_arrow
            if not any(known.equals(expected) for expected in (schema, or_else or schema)):
                raise DamagedFileError(f"{path}: not the columns of this version; {AGAIN}")
            return _bounded(stream, file.metadata, known, path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{path}: truncated or corrupt; {AGAIN}") from error


def _bounded(stream: Any, metadata: Any, schema: pa.Schema, path: Path) -> pa.Table:
    """Return a table; a few bytes of repeated numbers and texts may stand for terabytes."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    file = pq.ParquetFile(stream, page_checksum_verification=True, read_dictionary=texts)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    # Of lists, each element.
    size = NUMBER_BYTES * sum(
        group.column(i).num_values for group in groups for i in range(metadata.num_columns)
    )
    if size <= MOST_TABLE_BYTES:
        table = file.read()
        names = [name.partition(".")[0] for name in texts]
        size += sum(_expanded(chunk) for name in names for chunk in table[name].chunks)
    if size > MOST_TABLE_BYTES:
        raise DamagedFileError(
            f"{path}: {size:,} bytes in memory, more than {MOST_TABLE_BYTES:,}; {AGAIN}"
        )
    return table.cast(schema)


def _expanded(texts: pa.DictionaryArray | pa.ListArray) -> int:
    """Return the bytes of an array of texts that repeat those of a dictionary, or of lists of them."""
    if isinstance(texts, pa.ListArray):
        texts = texts.flatten()
    lengths = pc.binary_length(texts.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(texts.indices)).as_py() or 0
