"""Strict reading of YAML and JSON: bounded, without duplicate keys, with a line number for every value.

This module does not depend on the schema of a study.
"""

import errno
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from stapo.text import short_escape, shorten, visible

MAX_BYTES = 2**18
MAX_DEPTH = 20
MAX_VALUES = MAX_BYTES
"""Maximum number of values in a file; only with aliases can a file contain more."""
MAX_BITS = 60
"""Maximum size of an integer; all JSON readers support 64 bits."""
MAX_LINE = 400
"""Maximum characters of an error message."""
MAX_ERRORS = 100

Place = tuple[str | int, ...]
"""Path of keys and indices to a value."""
Problem = tuple[Place, str]
"""Place of a problem, and its description with a remedy."""


class StudyError(ValueError):
    """All errors in a user's input, one line each."""

    def __init__(self, errors: list[str]):
        kept = [
            visible(shorten(error, MAX_LINE - 1), escape=short_escape)
            for error in errors[:MAX_ERRORS]
        ]
        if len(errors) > MAX_ERRORS:
            kept.append(f"and {len(errors) - MAX_ERRORS} more")
        super().__init__("\n".join(kept))
        self.errors = kept


@dataclass
class Document:
    """The content of a file, with its line numbers and the problems found so far."""

    content: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, str] = field(default_factory=dict)
    """`file:line` of every key and item."""
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, place: Place) -> str:
        """Return ` (file:line)` of a place, or of its parent if it is missing; empty if unknown."""
        line = self.lines.get(place) or self.lines.get(place[:-1])
        return f" ({line})" if line else ""

    def errors(self, problems: list[Problem]) -> list[str]:
        """Return one line for each problem, with its place and its line."""
        return [
            line + self.line_of(at) for (at, _), line in zip(problems, lines(problems), strict=True)
        ]


def lines(problems: Iterable[Problem]) -> list[str]:
    """Return one line for each problem."""
    return [": ".join(filter(None, (".".join(map(str, at)), what))) for at, what in problems]


def shown_path(path: Path) -> str:
    """Return a path relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_file(path: Path, limit: int | None = None) -> bytes:
    """Return the content of a regular file; a device or a pipe may have no end.

    Raises:
        StudyError: it cannot be read, or is larger than `limit` bytes.
    """
    name = shown_path(path)
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        with path.open("rb") as stream:
            data = stream.read(-1 if limit is None else limit + 1)
    except (OSError, ValueError) as error:
        raise StudyError([f"{name}: {getattr(error, 'strerror', None) or error}"]) from error
    if limit is not None and len(data) > limit:
        raise StudyError([f"{name}: larger than {limit} bytes"])
    return data


def read_text(path: Path, limit: int | None = None) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark; errors as of `read_file`."""
    try:
        return read_file(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        about = f"not UTF-8 at byte {error.start}; save it as UTF-8"
        raise StudyError([f"{shown_path(path)}: {about}"]) from error


class _Constructor(RoundTripConstructor):
    """Keeps the lines of keys that are given twice; ruamel.yaml alone stops at the first of them."""

    def check_mapping_key(
        self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any
    ) -> bool:
        is_new = key not in mapping
        if not is_new:
            twice = self.loader.__dict__.setdefault("twice", {})
            twice.setdefault(id(mapping), []).append((key, key_node.start_mark.line))
        return is_new


def load_yaml(path: Path) -> Document:
    """Return the mapping of a YAML 1.2 file.

    Raises:
        StudyError: the file is missing, not YAML, not a mapping, or exceeds a limit.
    """
    name = shown_path(path)
    text = read_text(path, MAX_BYTES)
    parser = YAML(pure=True)
    parser.Constructor = _Constructor
    try:
        content = parser.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        about = ", ".join(filter(None, (error.context, error.problem)))
        raise StudyError([f"{name}{line}: not YAML: {about}"]) from error
    except RecursionError as error:
        raise StudyError([f"{name}: nested more than {MAX_DEPTH} levels deep"]) from error
    except (YAMLError, ValueError) as error:
        raise StudyError([f"{name}: not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(content, Mapping):
        raise StudyError([f"{name}: expected a mapping with name, training, run, ..."])
    return document_of(content, name, parser.__dict__.get("twice", {}))


def document_of(
    content: Mapping[str, Any], source: str = "", twice: Mapping[int, Any] | None = None
) -> Document:
    """Return a document of plain values; what a study cannot contain becomes a problem.

    Args:
        content: a mapping, from a file with the lines that ruamel.yaml gives to it.
        source: name of the file or option.
        twice: id of a mapping in it -> keys that are given again, with their lines.

    Raises:
        StudyError: it is nested too deeply, or contains too many values.
    """
    reader = _Reader(source, twice or {})
    reader.found.content = reader.mapping(content, ())
    return reader.found


class _Reader:
    """Converts the values of a document to plain ones, and collects line numbers and problems."""

    def __init__(self, source: str, twice: Mapping[int, Any]) -> None:
        self.source, self.twice = source, twice
        self.found = Document()
        self.count = 0

    def plain(self, value: Any, place: Place) -> Any:
        self.count += 1
        # An anchor may contain its own alias, and ten aliases of ten aliases are many values.
        if len(place) > MAX_DEPTH or self.count > MAX_VALUES:
            limit = f"nested more than {MAX_DEPTH} levels deep"
            limit = limit if len(place) > MAX_DEPTH else f"more than {MAX_VALUES} values"
            raise StudyError([f"{self.found.lines[place]}: {limit}, aliases included; write fewer"])
        if isinstance(value, Mapping):
            return self.mapping(value, place)
        if isinstance(value, list):
            self.found.lines |= {
                (*place, i): self.where(value, "item", i) for i in range(len(value))
            }
            return [self.plain(one, (*place, i)) for i, one in enumerate(value)]
        kept, fault = _scalar(value)
        if fault:
            self.found.problems.append((place, fault))
        return kept

    def mapping(self, value: Mapping[Any, Any], place: Place) -> dict[str, Any]:
        result = {}
        for key, inner in value.items():
            name = key if isinstance(key, str) else str(key)[:40]
            at = (*place, name)
            self.found.lines[at] = self.where(value, "key", key)
            if not isinstance(key, str):
                self.found.problems.append((at, "this key is not text; put it in quotes"))
            result[name] = self.plain(inner, at)
        for key, line in self.twice.get(id(value), ()):
            about = f"given twice, again in line {line + 1}; keep one"
            self.found.problems.append(((*place, str(key)), about))
        return result

    def where(self, value: Any, kind: str, key: Any) -> str:
        """Return the line of a key or an item; one that a merge (<<) brings along has none of its own."""
        known = getattr(getattr(value, "lc", None), "data", None) or {}
        return (
            f"{self.source}:{getattr(value.lc, kind)(key)[0] + 1}" if key in known else self.source
        )


def _scalar(value: Any) -> tuple[Any, str | None]:
    """Return a value as a plain one, and its problem if there is one."""
    if isinstance(value, bool):
        return str(value), "no setting is true or false; if it is text, put it in quotes"
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            return 0, "an integer of more than 18 digits; write a smaller one"
        return int(value), None
    if isinstance(value, float):
        return float(value), None
    if isinstance(value, str):
        return str(value), None
    if value is None:
        return None, None
    if isinstance(value, date):
        return str(value), "YAML takes this for a date; put it in quotes"
    return str(value), "a value with a tag of its own; remove the tag"


def strict_json(text: str, **options: Any) -> Any:
    """Return the value of a JSON text; options are those of `json.loads`.

    Raises:
        ValueError: it is not JSON, an object has a key twice, or it contains NaN or infinity.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} is given twice; keep one")
        return found

    def refused(word: str) -> Any:
        raise ValueError(f"{word} is no number; write a finite one")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refused, **options)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}"
        raise ValueError(f"not JSON: {error.msg}, at {place}") from error
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from error


def parse_json(text: str, name: str) -> dict[str, Any]:
    """Return the object of a JSON text.

    Args:
        text: JSON.
        name: name of the option or file, for errors.

    Raises:
        StudyError: it is not JSON, not an object, has a duplicate key, or exceeds a limit.
    """
    if len(text) > MAX_BYTES:
        raise StudyError([f"{name}: longer than {MAX_BYTES} characters"])
    try:
        found = strict_json(text)
    except ValueError as error:
        raise StudyError([f"{name}: {error}"]) from error
    if not isinstance(found, dict):
        raise StudyError([f'{name}: expected a JSON object, such as {{"key": 1}}'])
    document = document_of(found, name)
    if document.problems:
        raise StudyError([f"{name}: {line}" for line in lines(document.problems)])
    return document.content
