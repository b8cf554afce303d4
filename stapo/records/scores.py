"""Scores: one row per response, and what a score file says of itself."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypedDict, cast, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.files import DamagedFileError, replace_file
from stapo.records.verdicts import Verdict, VerifierVerdict

VERSION = 1
"""Of the fields below; no file states it. Another one is another `RECIPES["score"]`, too."""


@dataclass(frozen=True)
class ScoreRow:
    """What became of one response; the columns of a score file, in their order."""

    problem: int
    """Row of the benchmark, from 0."""
    sample: int
    """Index among the problem's samples, from 0."""
    gold: str
    """The reference answer."""
    answer: str | None
    """The content of the last box, or of several for a gold of several parts; null without one."""
    verdict: Verdict
    correct: bool
    """By the rules."""
    num_tokens: int
    """With the end token."""
    truncated: bool
    """Whether the response reached the limit without an end token."""
    duplicate: bool
    """Whether an earlier response to the same problem has the same text."""
    verifier: VerifierVerdict
    verifier_cut: bool
    """Whether the verifier read the end of the response only."""
    correct_with_verifier: bool
    """By the rules or by the verifier."""


class ScoreIdentity(TypedDict, total=False):
    """What a score file says of itself; responses that are scored by hand leave out what they have not."""

    asked: str
    """Fingerprint of weights, problems and decoding; the same for every engine."""
    verifier: dict[str, Any]
    """Which model judged, empty without one."""
    fingerprint: str
    """Of all that leads to the scores."""
    study: str
    checkpoint: str
    decoding: str
    benchmark: str
    samples: int
    """N of each problem."""
    engine: str
    """What answered: package, version and device."""
    provenance: dict[str, Any]
    """Commit, packages and machine of the scoring."""


def _column_type(kind: Any) -> pa.DataType:
    """Return the column type of a field; the names of a Literal are strings."""
    options = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    plain = options[0] if isinstance(options[0], type) else type(options[0])
    return {int: pa.int32(), str: pa.string(), bool: pa.bool_()}[plain]


_FIELDS = get_type_hints(ScoreRow)
SCHEMA = pa.schema([(name, _column_type(kind)) for name, kind in _FIELDS.items()])
MAY_BE_NULL = frozenset(name for name, kind in _FIELDS.items() if NoneType in get_args(kind))
METADATA_KEY = b"stapo"
"""Of the identity, as JSON, in the metadata of the parquet schema."""


def write_score_file(path: Path, rows: Sequence[ScoreRow], identity: ScoreIdentity) -> None:
    """Write a score file atomically."""
    schema = SCHEMA.with_metadata(metadata_of(identity))
    table = pa.Table.from_pylist([vars(row) for row in rows], schema=schema)
    with replace_file(path, "wb") as stream:
        pq.write_table(table, stream)


def metadata_of(identity: ScoreIdentity) -> dict[bytes, str]:
    """Return the metadata of the parquet schema."""
    return {METADATA_KEY: json.dumps(identity, sort_keys=True)}


def read_score_file(path: Path) -> tuple[pa.Table, ScoreIdentity]:
    """Return a score file, and what it says of itself; columns of other names may be there too.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: it is none, with the cause.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        cause = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DamagedFileError(f"truncated or corrupt ({cause})") from error
    for field in SCHEMA:
        if table.schema.get_field_index(field.name) < 0:
            raise DamagedFileError(f"no column {field.name}")
        if (found := table.schema.field(field.name).type) != field.type:
            raise DamagedFileError(f"column {field.name} is of {found}")
        if field.name not in MAY_BE_NULL and table[field.name].null_count:
            raise DamagedFileError(f"column {field.name} has gaps")
    return table, identity_in(table.schema)


def read_identity(path: Path) -> ScoreIdentity:
    """Return what a score file says of itself, without its rows.

    Raises:
        OSError: it cannot be read.
        ValueError: it says nothing, or is no parquet file.
    """
    return identity_in(pq.read_schema(path))


def identity_in(schema: pa.Schema) -> ScoreIdentity:
    """Return what the metadata of a schema say; the types of single values are not looked at.

    Raises:
        DamagedFileError: nothing.
    """
    try:
        found = json.loads((schema.metadata or {}).get(METADATA_KEY, b""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("provenance", {}), dict):
        raise DamagedFileError("does not say what made it")
    return cast("ScoreIdentity", found)


def rows_of(table: pa.Table) -> list[ScoreRow]:
    """Return the rows of a score file."""
    return [ScoreRow(**row) for row in table.select(SCHEMA.names).to_pylist()]
