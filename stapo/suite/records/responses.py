"""Records of responses: single ones in a store during generation, and all of a problem when published.

A store contains the responses of one checkpoint to one benchmark under one decoding, one per line. Every
line has a checksum of its content and the store's name. Lines that are truncated, altered or from another
store are reported, removed and generated again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stapo.core.files import (
    AGAIN,
    DamagedFileError,
    append_jsonl,
    content_of,
    fingerprint,
    write,
    write_jsonl,
)
from stapo.suite.records.reading import record_of

Key = tuple[int, int]
"""Indices of problem and sample."""


@dataclass(frozen=True)
class Response:
    """A generated response: one sample of a problem."""

    text: str
    """Text without the end token and other special tokens."""
    num_tokens: int
    """Number of tokens, including the end token."""
    truncated: bool
    """Whether the response reached the limit without an end token."""


@dataclass(frozen=True)
class StoredResponse:
    """One line of a store, without its checksum."""

    problem: int
    """Index of the benchmark row, from 0."""
    sample: int
    """Index among the problem's samples, from 0."""
    seed: int
    """Seed of the sample, 63 bits."""
    engine: str
    """Package, version and device."""
    text: str
    """This and the following fields are those of `Response`."""
    num_tokens: int
    truncated: bool


@dataclass(frozen=True)
class AnsweredProblem:
    """One line of published responses: a problem with its N samples in order."""

    problem: int
    """Index of the benchmark row, from 0."""
    question: str
    """Question as the model read it, without the chat template."""
    gold: str
    """Reference answer."""
    responses: list[str]
    """N texts, without the end token and other special tokens, in the order of the samples."""
    num_tokens: list[int]
    """Number of tokens of each, including the end token."""
    truncated: list[bool]
    """Whether each reached the limit without an end token."""
    engines: list[str]
    """All engines of the responses, without repetitions."""
    fingerprint: str
    """Fingerprint of all that determines responses, the benchmark apart: that of the stage `generate`."""

    def samples(self) -> Iterator[Response]:
        """Yield the responses one by one."""
        columns = (self.responses, self.num_tokens, self.truncated)
        return (Response(*values) for values in zip(*columns, strict=True))


MIXED_DEVICES = "allow several devices with evaluation.devices: mixed"


def are_mixed(engines: Iterable[str], devices: str) -> bool:
    """Return whether engines differ in package or version, or in the device if `devices` is `same`."""
    mixed = devices == "mixed"
    return len({engine.partition(" on ")[0] if mixed else engine for engine in engines}) > 1


PER_SAMPLE = ("responses", "num_tokens", "truncated")
"""Fields of a problem with one entry for each sample."""


@dataclass(frozen=True)
class _Line(StoredResponse):
    checksum: str


@dataclass(frozen=True)
class _Published(AnsweredProblem):
    checksum: str


def store(path: Path, response: StoredResponse) -> None:
    """Append a response to a store."""
    append_jsonl(path, {**vars(response), "checksum": _checksum(path, response)})


def stored(path: Path, say: Callable[[str], None]) -> dict[Key, StoredResponse]:
    """Return the responses of a store, and remove invalid lines from it.

    `say` is called with one line if something was removed.
    """
    responses: dict[Key, StoredResponse] = {}
    whole, bad = [], []
    *lines, _ = content_of(path).split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines, start=1):
        try:
            content = vars(record_of(_Line, line)).copy()
            checksum, response = content.pop("checksum"), StoredResponse(**content)
            if checksum != _checksum(path, response):
                raise ValueError("altered, or of another store")
        except ValueError:
            bad.append(number)
        else:
            whole.append(line + b"\n")
            responses[response.problem, response.sample] = response
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        say(f"{path}:{bad[0]}{more}: truncated, corrupt or altered; generated again")
        write(path, b"".join(whole))
    return responses


def _checksum(path: Path, response: StoredResponse) -> str:
    return fingerprint([path.name, vars(response)])


def write_responses(path: Path, problems: Sequence[AnsweredProblem]) -> None:
    """Publish the responses to a benchmark, one line per problem."""
    lines = map(vars, problems)
    write_jsonl(path, [{**line, "checksum": fingerprint(line)} for line in lines])


def read_responses(
    path: Path, rows: int | None = None, samples: int | None = None
) -> list[AnsweredProblem]:
    """Return the published responses to a benchmark: as many problems and samples as expected, if known.

    Raises:
        DamagedFileError: a line is damaged, or problems or responses are missing.
    """
    *lines, rest = content_of(path).split(b"\n") if path.exists() else [b""]
    problems = []
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        try:
            if number > len(lines):
                raise ValueError("truncated, the last line has no line end")
            problems.append(_problem(line, samples))
        except ValueError as error:
            raise DamagedFileError(f"{path}:{number}: {error}; {AGAIN}") from error
    if not problems:
        raise DamagedFileError(f"{path}: no responses; `stapo run generate` writes them")
    expected = range(rows or len(problems))
    if [problem.problem for problem in problems] != list(expected):
        raise DamagedFileError(
            f"{path}: not the problems 0 to {expected[-1]} in their order; {AGAIN}"
        )
    return problems


def _problem(line: bytes, samples: int | None) -> AnsweredProblem:
    """Return the problem of an untrusted line; unknown fields are ignored."""
    content = vars(record_of(_Published, line)).copy()
    stated, problem = content.pop("checksum"), AnsweredProblem(**content)
    if stated != fingerprint(content):
        raise ValueError("altered, it has another checksum")
    counts = {len(getattr(problem, name)) for name in PER_SAMPLE}
    if len(counts) > 1 or counts == {0} or samples not in (None, *counts):
        wanted = "as many responses" if samples is None else f"{samples} responses"
        raise ValueError(f"not {wanted}, token counts and ends")
    return problem
