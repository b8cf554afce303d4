"""Records of scores: one row per response, and the metadata of a score file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypedDict, cast, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from stapo.core.files import AGAIN, DamagedFileError, open_file, replace_file
from stapo.suite.records.reading import read_table

Verdict = Literal["correct", "wrong", "no_box", "unparsable", "timeout", "crash"]
"""Verdicts of the rule-based grader; `no_box` means that no answer was found, `timeout` and `crash` are
failures of the grader and count as wrong."""
FAILURES: tuple[Verdict, ...] = ("timeout", "crash")
Opinion = Literal["accepted", "rejected", "invalid"]
"""Verdicts of the verifier on a response that the rule-based grader rejects."""
OPINIONS: tuple[Opinion, ...] = get_args(Opinion)
VerifierVerdict = Literal[Opinion, "not_asked"]


@dataclass(frozen=True)
class ScoreRow:
    """The score of one response; its fields are the columns of a score file, in order."""

    problem: int
    """Index of the benchmark row, from 0."""
    sample: int
    """Index among the problem's samples, from 0."""
    gold: str
    """Reference answer."""
    answer: str | None
    """What the benchmark's reader found in the response, such as the content of the last box; or null."""
    verdict: Verdict
    """Verdict of the rule-based grader, and why."""
    correct: bool
    """Whether the rule-based grader accepts the response."""
    num_tokens: int
    """Number of tokens, including the end token."""
    truncated: bool
    """Whether the response reached the limit without an end token."""
    duplicate: bool
    """Whether an earlier response to the same problem has the same text."""
    verifier: VerifierVerdict
    """Verdict of the verifier: accepted, rejected, invalid or not_asked."""
    verifier_cut: bool
    """Whether the verifier read only the end of the response."""
    correct_with_verifier: bool
    """Whether the rule-based grader or the verifier accepts the response."""


class ScoreIdentity(TypedDict, total=False):
    """Metadata of a score file; for responses that are scored by hand, some fields are missing."""

    asked: str
    """Fingerprint of weights, problems and decoding; the same for every engine."""
    verifier: dict[str, Any]
    """Model of the verifier, empty without one."""
    fingerprint: str
    """Fingerprint of everything that determines the scores."""
    study: str
    """Name of the study."""
    checkpoint: str
    """Name of the checkpoint."""
    decoding: str
    """Name of the decoding."""
    benchmark: str
    """Name of the benchmark."""
    samples: int
    """Number of samples of each problem, N."""
    responses: str
    """SHA-256 of the file of responses."""
    differs_from_math_verify: int
    """Number of responses on which the verdict of math-verify alone is another; missing in older files."""
    differs_from_reward: dict[str, int]
    """Of trainings with a built-in reward: responses `accepted` by the grader alone, and `rewarded` alone."""
    engine: str
    """Engine of the responses: package, version and device; several are joined by ` and `."""
    provenance: dict[str, Any]
    """Commit, packages and machine of the scoring."""


def _column_type(kind: Any) -> pa.DataType:
    """Return the column type of a field; a Literal of names becomes string."""
    options = [option for option in get_args(kind) or (kind,) if option is not NoneType]
    plain = options[0] if isinstance(options[0], type) else type(options[0])
    return {int: pa.int32(), str: pa.string(), bool: pa.bool_()}[plain]


SCHEMA = pa.schema([(name, _column_type(kind)) for name, kind in get_type_hints(ScoreRow).items()])
METADATA_KEY = b"stapo"
"""Key of the identity, as JSON, in the metadata of the parquet schema."""


def write_score_file(path: Path, rows: Sequence[ScoreRow], identity: ScoreIdentity) -> None:
    """Write a score file atomically."""
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(identity, sort_keys=True)})
    table = pa.Table.from_pylist([vars(row) for row in rows], schema=schema)
    with replace_file(path, "wb") as stream:
        pq.write_table(table, stream, write_page_checksum=True)


def read_score_file(path: Path) -> tuple[pa.Table, ScoreIdentity]:
    """Return table and metadata of a score file; it raises as `read_table` and `read_identity` do."""
    return read_table(path, SCHEMA), read_identity(path)


def read_identity(path: Path) -> ScoreIdentity:
    """Return the metadata of a score file, without its rows; the types of single values are not checked.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a parquet file, or has no valid identity.
    """
    with open_file(path) as stream:
        identity = identity_in(pq.read_schema(stream))
    if identity is None:
        raise DamagedFileError(f"{path}: does not say what made it; {AGAIN}")
    return identity


def identity_in(schema: pa.Schema) -> ScoreIdentity | None:
    """Return the metadata in the schema of a score file, None if they are not valid."""
    try:
        identity = json.loads((schema.metadata or {}).get(METADATA_KEY, b""))
    except (ValueError, RecursionError):
        identity = None
    if not isinstance(identity, dict) or not isinstance(identity.get("provenance", {}), dict):
        return None
    return cast("ScoreIdentity", identity)


def rows_of(table: pa.Table) -> list[ScoreRow]:
    """Return the rows of a score file."""
    return [ScoreRow(**row) for row in table.to_pylist()]
