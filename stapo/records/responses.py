"""Responses: one as it is stored while a checkpoint answers, and a problem with all of them, as published.

A store holds the responses of one checkpoint to one benchmark under one decoding, a line each. Every line
carries a checksum over itself and the store's name. A line that is truncated, altered or another store's is
no response: it is left out, with a line that says so, and generated again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from stapo.canonical import fingerprint
from stapo.files import (
    AGAIN,
    DamagedFileError,
    append_jsonl,
    read_published,
    scan_jsonl,
    write_jsonl,
)

VERSION = 1
"""Of the fields below; no file states it. Another one is another `RECIPES["generate"]`, too."""

Key = tuple[int, int]
"""Problem and sample."""


@dataclass(frozen=True)
class Response:
    """What a checkpoint answered to one sample of a problem."""

    text: str
    """Without its end token and other special ones."""
    num_tokens: int
    """With the end token."""
    truncated: bool
    """Whether it reached the limit without an end token."""


@dataclass(frozen=True)
class StoredResponse:
    """One line of a store, its checksum apart."""

    problem: int
    """Row of the benchmark, from 0."""
    sample: int
    """Index among the problem's samples, from 0."""
    seed: int
    """Of the draw, 63 bits."""
    engine: str
    """Package, version and device."""
    text: str
    """This and what follows: as `Response`."""
    num_tokens: int
    truncated: bool


@dataclass(frozen=True)
class AnsweredProblem:
    """One line of published responses: a problem with its N samples, in their order."""

    problem: int
    """Row of the benchmark, from 0."""
    question: str
    """As the model was shown it, chat template apart."""
    gold: str
    """The reference answer."""
    responses: list[str]
    """N texts; this and the next two hold the fields of `Response`."""
    num_tokens: list[int]
    truncated: list[bool]
    engines: list[str]
    """All that answered, each once."""

    def samples(self) -> Iterator[Response]:
        """Yield the responses one by one."""
        columns = (self.responses, self.num_tokens, self.truncated)
        return (Response(*values) for values in zip(*columns, strict=True))


PER_SAMPLE = ("responses", "num_tokens", "truncated")
"""Fields of a problem that have an entry for each sample."""
FIELDS = get_type_hints(AnsweredProblem)
STORED_FIELDS = get_type_hints(StoredResponse)
CHECKSUM = "checksum"


def store(path: Path, response: StoredResponse) -> None:
    """Append a response to a store."""
    record = vars(response)
    append_jsonl(path, {**record, CHECKSUM: _checksum(path, record)})


def stored(path: Path, say: Callable[[str], None]) -> dict[Key, StoredResponse]:
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
    found = (StoredResponse(**{name: record[name] for name in STORED_FIELDS}) for record in whole)
    return {(response.problem, response.sample): response for response in found}


def _is_whole(path: Path, record: Mapping[str, Any]) -> bool:
    known = {name: value for name, value in record.items() if name != CHECKSUM}
    typed = all(_is_of(known.get(name), kind) for name, kind in STORED_FIELDS.items())
    try:
        return typed and record.get(CHECKSUM) == _checksum(path, known)
    except ValueError:  # NaN, which is no JSON.
        return False


def _checksum(path: Path, record: Mapping[str, Any]) -> str:
    return fingerprint([path.name, record])


def write_responses(path: Path, problems: Sequence[AnsweredProblem]) -> None:
    """Publish the responses to a benchmark, one line per problem."""
    write_jsonl(path, [vars(problem) for problem in problems])


def read_responses(
    path: Path, rows: int | None = None, samples: int | None = None
) -> list[AnsweredProblem]:
    """Return the published responses to a benchmark, problem by problem.

    Args:
        path: as `write_responses` writes them.
        rows: number of problems, where it is known.
        samples: responses to each, where it is known.

    Raises:
        DamagedFileError: a line is damaged, or problems or responses are missing.
    """
    problems = []
    for number, record in enumerate(read_published(path), start=1):
        try:
            problems.append(answered_problem(record, samples))
        except ValueError as error:
            raise DamagedFileError(f"{path}:{number}: {error}; {AGAIN}") from error
    if not problems:
        raise DamagedFileError(f"{path}: no responses; `stapo generate` writes them")
    expected = range(rows or len(problems))
    if [problem.problem for problem in problems] != list(expected):
        raise DamagedFileError(
            f"{path}: not the problems 0 to {expected[-1]} in their order; {AGAIN}"
        )
    return problems


def answered_problem(record: Mapping[str, Any], samples: int | None = None) -> AnsweredProblem:
    """Return the problem that a record holds, whoever wrote it; fields of other names are left out.

    Args:
        record: a line of published responses.
        samples: number of responses, where it is known.

    Raises:
        ValueError: a field is missing or of another type, or there are more or fewer responses.
    """
    if missing := [name for name in FIELDS if name not in record]:
        raise ValueError(f"no {', '.join(missing)}")
    wrong = [name for name, kind in FIELDS.items() if not _is_of(record[name], kind)]
    if others := [name for name in wrong if name not in PER_SAMPLE]:
        raise ValueError(f"{', '.join(others)}: of another type")
    counts = set() if wrong else {len(record[name]) for name in PER_SAMPLE}
    if len(counts) != 1 or counts == {0} or (samples is not None and counts != {samples}):
        wanted = "as many responses" if samples is None else f"{samples} responses"
        raise ValueError(f"not {wanted}, token counts and ends")
    return AnsweredProblem(**{name: record[name] for name in FIELDS})


def _is_of(value: object, kind: Any) -> bool:
    """Return whether a value is of a type such as int or list[int]; a bool is no int here."""
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        return isinstance(value, list) and all(type(one) is inner for one in value)
    return type(value) is kind
