"""Strict reading of YAML and JSON: size limits, no duplicate keys, and line numbers in all errors.

PyYAML alone keeps the last of two equal keys, expands aliases without a limit, and reads some text as
dates or octal numbers. This module does not depend on the schema of a study.
"""

import errno
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stapo.text import short_escape, shorten, visible

MAX_BYTES = 2**18
MAX_DEPTH = 20
MAX_VALUES = 20_000
"""Maximum number of values in a file, with aliases expanded."""
MAX_DIGITS = 18
"""Maximum digits of an integer; they fit into 64 bits, which all JSON readers support."""
MAX_LINE = 400
"""Maximum characters of an error message."""
MAX_ERRORS = 100

Place = tuple[str | int, ...]
"""Path of keys and indices to a value."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_MEANT = {
    "int": "a number", "float": "a number", "bool": "true or false", "timestamp": "a date",
    "value": "a default",
}  # fmt: skip
_CORE = "tag:yaml.org,2002:"


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
    """`file:line` of every key and item; of a section that several files have, that of each."""
    problems: list[tuple[Place, str]] = field(default_factory=list)
    """Place and description of each problem, with its line."""


def load_yaml(path: Path) -> Document:
    """Return the mapping of a YAML file.

    Raises:
        StudyError: the file is missing, not YAML, not a mapping, or exceeds a limit.
    """
    name = shown_path(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise StudyError([f"{name}: {getattr(error, 'strerror', None) or error}"]) from error
    if len(data) > MAX_BYTES:
        raise StudyError([f"{name}: larger than {MAX_BYTES} bytes; not a study"])
    try:
        loader = _Composer(data.decode())
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise StudyError([f"{name}: expected a mapping with name, training, run, ..."])
        return _Reader(name).document(node)
    except UnicodeDecodeError as error:
        raise StudyError([f"{name}: not UTF-8 at byte {error.start}; save it as UTF-8"]) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        about = ", ".join(filter(None, (error.context, error.problem)))
        reason = about if error.problem == _TOO_DEEP else f"not YAML: {about}"
        raise StudyError([f"{name}{line}: {reason}"]) from error
    except yaml.YAMLError as error:
        raise StudyError([f"{name}: not YAML: {' '.join(str(error).split())}"]) from error


def document_of(content: Mapping[str, Any], source: str = "") -> Document:
    """Return a document for values that are not from a file; `source` replaces the line numbers."""
    return Document(dict(content), dict.fromkeys(_places(content, ()), source))


def _places(value: Any, place: Place) -> Iterator[Place]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, inner in items:
        yield (*place, key)
        if isinstance(inner, Mapping | list):
            yield from _places(inner, (*place, key))


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
    found = _Json(name).read(text)
    if not isinstance(found, dict):
        raise StudyError([f'{name}: expected a JSON object, such as {{"key": 1}}'])
    if _is_deeper(found, MAX_DEPTH):
        raise StudyError([f"{name}: {_TOO_DEEP}"])
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


class _Json:
    """Collects the problems of a JSON text while Python's parser reads it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []

    def read(self, text: str) -> Any:
        try:
            found = json.loads(
                text,
                object_pairs_hook=self.mapping,
                parse_int=self.integer,
                parse_constant=self.constant,
            )
        except json.JSONDecodeError as error:
            raise StudyError([f"{self.name}: not JSON: {error}"]) from error
        except RecursionError as error:
            raise StudyError([f"{self.name}: {_TOO_DEEP}"]) from error
        if self.problems:
            raise StudyError([f"{self.name}: {problem}" for problem in self.problems])
        return found

    def mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(key for key, _ in pairs)
        twice = [key for key, count in counts.items() if count > 1]
        self.problems += [f"the key {key!r} is given twice; keep one" for key in twice]
        return dict(pairs)

    def integer(self, digits: str) -> int | str:
        if len(digits.lstrip("-")) <= MAX_DIGITS:
            return int(digits)
        self.problems.append(_too_many_digits(digits))
        return digits

    def constant(self, word: str) -> str:
        self.problems.append(f"{word} is not allowed in a study; write a finite number")
        return word


def line_of(place: Place, lines: Mapping[Place, str]) -> str:
    """Return ` (file:line)` of a place, or of its parent if it is missing; empty if unknown."""
    line = lines.get(place) or lines.get(place[:-1])
    return f" ({line})" if line else ""


def require_regular(path: Path) -> None:
    """Raise an OSError for a directory, or for a device or pipe, which may have no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")


def shown_path(path: Path) -> str:
    """Return a path relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _too_many_digits(digits: str) -> str:
    return f"an integer of {len(digits.lstrip('+-'))} digits; at most {MAX_DIGITS}"


class _Composer(yaml.SafeLoader):
    """PyYAML's composer, with an error instead of a recursion if values are nested too deeply."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    """Converts YAML nodes to values, and collects line numbers and problems."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found = Document()
        self.values = 0

    def document(self, node: yaml.MappingNode) -> Document:
        self.found.content = self.mapping(node, ())
        return self.found

    def where(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def problem(self, node: yaml.Node, place: Place, message: str) -> None:
        self.found.problems.append((place, f"{message} ({self.where(node)})"))

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.values += 1
        # An anchor may contain its own alias, and ten aliases of ten aliases are many values.
        if len(place) > MAX_DEPTH:
            raise StudyError([f"{self.where(node)}: {_TOO_DEEP}, aliases included"])
        if self.values > MAX_VALUES:
            about = f"more than {MAX_VALUES} values, aliases included"
            raise StudyError([f"{self.where(node)}: {about}; write fewer"])
        self.found.lines[place] = self.where(node)
        kind = node.tag.removeprefix(_CORE)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            value, problem = _scalar(kind, node.value)
            if problem:
                self.problem(node, place, problem)
            return value
        self.problem(node, place, f"a value of the type {kind[:60]}; remove the tag")
        return None

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node, place)
            if key is None:
                continue
            inner = (*place, key)
            if key in found:
                line = first[key].start_mark.line + 1
                self.problem(key_node, inner, f"given twice, first in line {line}; keep one")
                continue
            first[key] = key_node
            found[key] = self.value(value_node, inner)
            # For a mapping or list, the line of its key, not of its first item.
            self.found.lines[inner] = self.where(key_node)
        return found

    def key(self, node: yaml.Node, place: Place) -> str | None:
        """Return a key as text, also one that YAML reads otherwise, so that its value is checked."""
        kind = node.tag.removeprefix(_CORE)
        if not isinstance(node, yaml.ScalarNode) or kind in ("merge", "null"):
            about = "merge keys (<<) are unsupported; write keys out"
            self.problem(node, place, about if kind == "merge" else "a key that is not text")
            return None
        key: str = node.value
        if kind != "str":
            taken = _MEANT.get(kind, kind[:60])
            self.problem(node, (*place, key), f"YAML takes this key for {taken}; put it in quotes")
        return key


def _scalar(kind: str, text: str) -> tuple[Any, str | None]:
    """Return the value of a scalar, and its problem if there is one."""
    if kind == "null":
        return None, None
    if kind == "str":
        return text, None
    if kind == "bool" and text.lower() in yaml.SafeLoader.bool_values:
        return yaml.SafeLoader.bool_values[text.lower()], None
    if kind in ("int", "float"):
        return _number(kind, text)
    if kind not in _MEANT:
        return text, f"a value of the type {kind[:60]}; remove the tag"
    return text, f"YAML takes {text[:40]!r} for {_MEANT[kind]}; put it in quotes"


def _number(kind: str, text: str) -> tuple[Any, str | None]:
    plain = text.replace("_", "")
    unsigned = plain.lstrip("+-")
    if ":" in plain or (kind == "int" and unsigned.startswith("0") and unsigned.isdigit()):
        if unsigned == "0":
            return 0, None
        return (
            text,
            f"YAML reads {text[:40]!r} differently; write it in decimal or in quotes",
        )
    if kind == "int" and len(unsigned) > MAX_DIGITS:
        return text, _too_many_digits(plain)
    words = {".inf": "inf", ".nan": "nan"}
    try:
        if kind == "int":
            return int(plain, 0), None
        sign = "-" if plain.startswith("-") else ""
        return float(sign + words.get(unsigned.lower(), unsigned)), None
    except ValueError:
        return text, f"{text[:40]!r} is not a number"
