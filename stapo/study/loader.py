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
from ruamel.yaml.constructor import ConstructorError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

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

READER = YAML(typ="safe", pure=True)
TEXT = "tag:yaml.org,2002:str"
"""Tag of texts in YAML."""

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


def load_yaml(path: Path) -> Document:
    """Return the mapping of a YAML 1.2 file.

    Raises:
        StudyError: the file is missing, not YAML, not a mapping, or exceeds a limit.
    """
    name = shown_path(path)
    text = read_text(path, MAX_BYTES)
    try:
        node = READER.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        about = ", ".join(filter(None, (error.context, error.problem)))
        raise StudyError([f"{name}{line}: not YAML: {about}"]) from error
    except RecursionError as error:
        raise StudyError([f"{name}: nested more than {MAX_DEPTH} levels deep"]) from error
    except (YAMLError, ValueError) as error:
        raise StudyError([f"{name}: not YAML: {' '.join(str(error).split())}"]) from error
    if not isinstance(node, MappingNode):
        raise StudyError([f"{name}: expected a mapping with name, training, run, ..."])
    return document_of(node, name)


def document_of(content: Mapping[str, Any] | MappingNode, source: str = "") -> Document:
    """Return a document of plain values; what a study cannot contain becomes a problem.

    Args:
        content: a mapping, or that of a YAML file with the lines of its keys.
        source: name of the file or option.

    Raises:
        StudyError: it is nested too deeply, or contains too many values.
    """
    reader = _Reader(source)
    reader.found.content = reader.plain(content, ())
    return reader.found


class _Reader:
    """Converts values, or nodes of YAML, to plain values, and collects line numbers and problems."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found = Document()
        self.count = 0

    def plain(self, given: Any, place: Place) -> Any:
        self.count += 1
        # An anchor may contain its own alias, and ten aliases of ten aliases are many values.
        if len(place) > MAX_DEPTH or self.count > MAX_VALUES:
            limit = f"nested more than {MAX_DEPTH} levels deep"
            limit = limit if len(place) > MAX_DEPTH else f"more than {MAX_VALUES} values"
            raise StudyError([f"{self.found.lines[place]}: {limit}, aliases included; write fewer"])
        if isinstance(given, MappingNode | Mapping):
            pairs = given.value if isinstance(given, MappingNode) else given.items()
            return self.mapping(pairs, place)
        if isinstance(given, SequenceNode | list):
            items = given.value if isinstance(given, SequenceNode) else given
            self.found.lines |= {(*place, i): self.where(one) for i, one in enumerate(items)}
            return [self.plain(one, (*place, i)) for i, one in enumerate(items)]
        kept, fault = _scalar(given)
        if fault:
            self.found.problems.append((place, fault))
        return kept

    def mapping(self, pairs: Iterable[tuple[Any, Any]], place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, inner in pairs:
            name, is_text = _name(key)
            at = (*place, name)
            if name in result and isinstance(key, Node):
                about = f"given twice, again in line {key.start_mark.line + 1}; keep one"
                self.found.problems.append((at, about))
                continue
            self.found.lines[at] = self.where(key)
            if not is_text:
                self.found.problems.append((at, "this key is not text; put it in quotes"))
            result[name] = self.plain(inner, at)
        return result

    def where(self, given: Any) -> str:
        """Return the line of a node; of a value, its source."""
        line = f":{given.start_mark.line + 1}" if isinstance(given, Node) else ""
        return f"{self.source}{line}"


def _name(key: Any) -> tuple[str, bool]:
    """Return a key as text, and whether it is one."""
    if isinstance(key, ScalarNode):
        return key.value, key.tag == TEXT
    if isinstance(key, Node):
        return "?", False
    return (key, True) if isinstance(key, str) else (str(key)[:40], False)


def _scalar(given: Any) -> tuple[Any, str | None]:
    """Return a value, or a node without others in it, as a plain value, and its problem if there is one."""
    value = given
    if isinstance(given, ScalarNode):
        try:
            value = READER.constructor.construct_object(given)
        except ConstructorError:
            return given.value, "a value with a tag of its own; remove the tag"
        except ValueError as error:
            return given.value, f"not YAML: {error}; correct it"
    if isinstance(value, bool):
        return str(value), "no setting is true or false; if it is text, put it in quotes"
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            return 0, "an integer of more than 18 digits; write a smaller one"
        return int(value), None
    if isinstance(value, float):
        return float(value), None
    if isinstance(value, str) or value is None:
        return value, None
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
