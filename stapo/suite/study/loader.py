"""Reading of YAML files with a line number for every value, and the lines that answer bad input."""

import errno
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from stapo.core.files import MOST_BYTES
from stapo.suite.study.fields import IN_WORDS, Strict
from stapo.suite.text import did_you_mean, shorten, visible

MAX_LINE = 400
"""Maximum characters of an error message."""
MAX_ERRORS = 100
MOST_CHARACTERS = 100_000
"""Of a study file; the reader needs seconds for them."""
MAX_SHOWN = 60
"""Maximum characters of a value in an error message."""
KINDS = dict.fromkeys(
    ("model_type", "model_attributes_type", "dict_type"), "expected a mapping of names to values"
) | {"string_type": "expected text; put it in quotes"}
"""Kind of an error of pydantic -> what is said of it."""

READER = YAML(typ="safe", pure=True)
TEXT_TAG = "tag:yaml.org,2002:str"
PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
NULL_TAG = "tag:yaml.org,2002:null"

Place = tuple[str | int, ...]
"""Path of keys and indices to a value."""
Problem = tuple[Place, str]
"""Place of a problem, and its description with a remedy."""


class StudyError(ValueError):
    """All errors in a user's input, one line each."""

    def __init__(self, errors: list[str]):
        kept = [visible(shorten(error, MAX_LINE - 1)) for error in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            kept.append(f"and {len(errors) - MAX_ERRORS} more")
        super().__init__("\n".join(kept))
        self.errors = kept


@dataclass
class Document:
    """The content of a file, with its line numbers."""

    content: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    """Place of every key and item, joined by dots -> `file:line`."""

    def error(self, *problems: Problem) -> StudyError:
        """Return an error with a line for each problem: its place, what is wrong, and where in a file."""
        errors = []
        for at, message in problems:
            place, parent = (".".join(map(str, path)) for path in (at, at[:-1]))
            line = self.lines.get(place) or self.lines.get(parent)
            start, end = f"{place}: " if place else "", f" ({line})" if line else ""
            errors.append(start + shorten(message, MAX_LINE - 2 - len(start + end)) + end)
        return StudyError(errors)


def shown_path(path: Path) -> str:
    """Return a path relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_file(path: Path) -> bytes:
    """Return the content of a regular file; a device or a pipe may have no end."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        if path.stat().st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"more than {MOST_BYTES:,} bytes")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StudyError([f"{shown_path(path)}: {reason}"]) from error


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark; errors as of `read_file`."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 at byte {error.start}; save it as UTF-8"
        raise StudyError([f"{shown_path(path)}: {message}"]) from error


def load_yaml(path: Path) -> Document:
    """Return the mapping of a YAML 1.2 file."""
    name, text = shown_path(path), read_text(path)
    if len(text) > MOST_CHARACTERS:
        message = f"longer than {MOST_CHARACTERS:,} characters; write several studies"
        raise StudyError([f"{name}: {message}"])
    try:
        node = READER.compose(text)
        if not isinstance(node, MappingNode):
            raise StudyError([f"{name}: expected a mapping with name, training, run, ..."])
        lines = dict(_lines(node, name, "", {node}))
        return Document(READER.constructor.construct_document(node), lines)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        message = ", ".join(filter(None, (error.context, error.problem)))
        raise StudyError([f"{name}{line}: not YAML: {message}"]) from error
    except RecursionError as error:
        raise StudyError([f"{name}: too many brackets within brackets; write fewer"]) from error
    except YAMLError as error:
        raise StudyError([f"{name}: not YAML: {' '.join(str(error).split())}"]) from error


def _lines(node: Node, name: str, place: str, seen: set[Node]) -> Iterator[tuple[str, str]]:
    """Yield place and `file:line` of all keys and items below a node."""
    pairs = []
    if not isinstance(node, ScalarNode) and node.tag not in PLAIN_TAGS:
        line = f"{name}:{node.start_mark.line + 1}"
        raise StudyError([f"{line}: {node.tag}: a tag; write a plain mapping or list"])
    if isinstance(node, MappingNode):
        pairs = [(key.value, key, inner) for key, inner in node.value]
    elif isinstance(node, SequenceNode):
        pairs = [(i, inner, inner) for i, inner in enumerate(node.value)]
    elif isinstance(node, ScalarNode):
        try:
            READER.constructor.construct_object(node)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            line = f"{name}:{node.start_mark.line + 1}"
            message = f"{node.value!r}: {' '.join(str(error).split())}; put text in quotes"
            raise StudyError([f"{line}: not YAML: {message}"]) from error
    for key, at, inner in pairs:
        line = f"{name}:{at.start_mark.line + 1}"
        if isinstance(node, MappingNode) and at.tag != TEXT_TAG:
            raise StudyError([f"{line}: a key that is no text; put it in quotes"])
        here = f"{place}.{key}" if place else str(key)
        if inner in seen:
            raise StudyError([f"{line}: {here}: an alias; write the value itself"])
        if inner.tag == NULL_TAG and not inner.value:
            remedy = "`null` removes what is inherited, `{}` is an empty section"
            raise StudyError([f"{line}: {here}: no value; {remedy}"])
        seen.add(inner)
        yield here, line
        yield from _lines(inner, name, here, seen)


def field_problems(error: ValidationError, raw: Any) -> Iterator[Problem]:
    """Yield one problem for each place of pydantic's errors about a value."""
    # A union has one error for each of its types.
    problems: dict[Place, dict[str, None]] = {}
    for details in error.errors(include_url=False):
        place = _place(raw, details["loc"])
        if details["type"] == "missing":
            place, description = (*place, details["loc"][-1]), "missing; add it"
        elif details["type"] == "extra_forbidden":
            like = did_you_mean(str(place[-1]), _settings())
            description = f"unknown key; {like}remove it or correct its spelling"
        else:
            words = IN_WORDS.get(str(details.get("ctx", {}).get("pattern")))
            if details["type"] == "too_long":
                details["msg"] = f"more than {details['ctx']['max_length']}; write several studies"
            message = f"expected {words}" if words else KINDS.get(details["type"], details["msg"])
            message = message.removeprefix("Value error, ")
            description = f"{message} (found {shown(details['input'])})"
        problems.setdefault(place, {})[description] = None
    for place, messages in problems.items():
        yield place, " or ".join(messages)


def _settings() -> set[str]:
    """Return the names of all settings."""
    names, classes = set[str](), [Strict]
    for kind in classes:  # It grows.
        names |= kind.model_fields.keys()
        classes += kind.__subclasses__()
    return names


def shown(value: Any) -> str:
    """Return a short printable text for a value."""
    try:
        return shorten(json.dumps(value, default=str), MAX_SHOWN)
    except (ValueError, TypeError, RecursionError):
        return f"a {type(value).__name__}"


def _place(raw: Any, location: tuple[int | str, ...]) -> Place:
    """Return the place in the file: pydantic's without the names of the types in a union."""
    place: Place = ()
    for part in location:
        inside = isinstance(raw, Mapping) and part in raw
        inside = inside or (isinstance(raw, list) and isinstance(part, int) and part < len(raw))
        if inside:
            raw = raw[part]
            place = (*place, part)
    return place
