"""Files of responses: the store that grows while a checkpoint answers, and what is published of it.

Every line of a store carries a checksum over itself and the store's name, which is that of benchmark,
checkpoint and decoding. A line that is truncated, altered or another store's is no response: it is left
out, with a line that says so, and generated again.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stapo.canonical import fingerprint
from stapo.files import (
    AGAIN,
    DamagedFileError,
    append_jsonl,
    read_published,
    scan_jsonl,
    write_jsonl,
)

if TYPE_CHECKING:  # Scores read responses, and would wait for torch otherwise.
    from stapo.evaluation.sampling import Request, Response

Key = tuple[int, int]
"""Problem and sample."""
FIELDS: dict[str, type] = {
    "problem": int,
    "sample": int,
    "engine": str,
    "text": str,
    "num_tokens": int,
    "truncated": bool,
}
CHECKSUM = "checksum"
COLUMNS: dict[str, type] = {"responses": str, "num_tokens": int, "truncated": bool}
"""Of a published record, each with an entry per sample."""


def store(path: Path, request: "Request", response: "Response", engine: str) -> None:
    """Append a response to a store."""
    record: dict[str, Any] = vars(request).copy()
    del record["prompt_ids"]
    record |= {"engine": engine, **vars(response)}
    append_jsonl(path, {**record, CHECKSUM: _checksum(path, record)})


def stored(path: Path, say: Callable[[str], None]) -> dict[Key, dict[str, Any]]:
    """Return the responses of a store, and remove from it what is none.

    Args:
        path: the store.
        say: told one line if something was removed.
    """
    lines = list(scan_jsonl(path))
    whole = [record for _, record in lines if record is not None and _is_whole(path, record)]
    if len(whole) < len(lines):
        bad = [number for number, record in lines if record is None or not _is_whole(path, record)]
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        say(f"{path}:{bad[0]}{more}: truncated, corrupt or altered; generated again")
        write_jsonl(path, whole)
    return {(record["problem"], record["sample"]): record for record in whole}


def published(
    path: Path, rows: int | None = None, samples: int | None = None
) -> list[dict[str, Any]]:
    """Return the published responses to a benchmark, one record per problem.

    Args:
        path: JSON lines, as `evaluation.generate` writes them.
        rows: number of problems, where it is known.
        samples: responses to each, where it is known.

    Raises:
        DamagedFileError: a line is damaged, or problems or responses are missing.
        RuntimeError: there is no response at all.
    """
    fields = ("problem", "question", "gold", *COLUMNS, "engines")
    problems = read_published(path, fields)
    if not problems:
        raise RuntimeError(f"{path}: no responses; `stapo generate` writes them")
    for number, problem in enumerate(problems, start=1):
        if not _is_complete(problem, samples):
            wanted = f"{samples} responses" if samples else "as many responses"
            raise DamagedFileError(f"{path}:{number}: not {wanted}, token counts and ends; {AGAIN}")
    if [problem["problem"] for problem in problems] != list(range(rows or len(problems))):
        raise DamagedFileError(
            f"{path}: not the problems 0 to {(rows or len(problems)) - 1} in their order; {AGAIN}"
        )
    return problems


def _is_complete(problem: Mapping[str, Any], samples: int | None) -> bool:
    lists = {name: problem[name] for name in COLUMNS if isinstance(problem[name], list)}
    typed = all(type(value) is COLUMNS[name] for name, found in lists.items() for value in found)
    lengths = {len(found) for found in lists.values()}
    return (
        len(lists) == len(COLUMNS)
        and typed
        and len(lengths) == 1
        and lengths <= {samples or max(lengths)}
    )


def _is_whole(path: Path, record: Mapping[str, Any]) -> bool:
    known = {name: value for name, value in record.items() if name != CHECKSUM}
    typed = all(type(known.get(name)) is kind for name, kind in FIELDS.items())
    try:
        return typed and record.get(CHECKSUM) == _checksum(path, known)
    except ValueError:  # NaN, which is no JSON.
        return False


def _checksum(path: Path, record: Mapping[str, Any]) -> str:
    return fingerprint([path.name, record])
