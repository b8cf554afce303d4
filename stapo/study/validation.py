"""Errors of pydantic, rewritten as one line for each place, in the terms of the study file."""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from stapo.study.fields import IN_WORDS
from stapo.study.loader import Place
from stapo.text import shorten

Problem = tuple[Place, str]
"""Place of a problem, and its description with a remedy."""

KINDS = ("hub", "path", "file", "builder")
"""Tags of models and data that pydantic adds to places; they are not in the file."""
MOVED: dict[Place, str] = {
    ("evaluation", "end_tokens"): "it now applies to training too; move it to the top level of the "
    "study",
}
"""Keys of earlier versions, with their new place."""
TAGGED: dict[str | int, int] = {"data": 1, "models": 2}
"""Section of a study -> depth of the tag in pydantic's places."""
MAX_SHOWN = 60
"""Maximum characters of a value in an error message."""


def lines(problems: Iterable[Problem]) -> list[str]:
    """Return one line for each problem."""
    return [": ".join(filter(None, (".".join(map(str, at)), what))) for at, what in problems]


def field_problems(error: ValidationError, raw: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """Return one problem for each place of pydantic's errors.

    An unknown key that resembles a missing or an allowed one is reported as a misspelling, in one line.

    Args:
        error: pydantic's error.
        raw: the validated value.
        schema: JSON schema of the expected type.
    """
    found: dict[Place, list[str]] = {}
    missing: dict[Place, str] = {}
    extra: list[Place] = []
    for one in error.errors(include_url=False):
        tag = TAGGED.get(one["loc"][0] if one["loc"] else "", -1)
        place = _place(raw, one["loc"], tag, keep_last=one["type"] == "missing")
        if one["type"] == "missing":
            missing[place] = "missing; add it"
        elif one["type"] == "extra_forbidden":
            extra.append(place)
        else:
            message = IN_WORDS.get(str(one.get("ctx", {}).get("pattern")), "")
            message = f"expected {message}" if message else one["msg"]
            message = message.removeprefix("Value error, ")
            found.setdefault(place, []).append(f"{message} (found {shown(one['input'])})")
    problems: list[Problem] = []
    for place in extra:
        meant = _meant(place, missing, _keys(schema, place[:-1]))
        hint = f"did you mean {meant}?" if meant else "remove it or correct its spelling"
        hint = MOVED.get(place, hint)
        problems.append((place, f"unknown key; {hint}"))
        missing.pop((*place[:-1], meant or ""), None)
    problems += missing.items()
    # A union has one error for each of its types.
    return problems + [(place, " or ".join(dict.fromkeys(all_))) for place, all_ in found.items()]


def shown(value: Any) -> str:
    """Return a short printable text for a value."""
    try:
        return shorten(json.dumps(value, default=str), MAX_SHOWN)
    except (ValueError, TypeError, RecursionError):
        return f"a {type(value).__name__}"


def _meant(place: Place, missing: Mapping[Place, str], known: Iterable[str]) -> str | None:
    beside = [str(at[-1]) for at in missing if at[:-1] == place[:-1]]
    for candidates in (beside, known):
        # Skip the same name in another kind of model or data.
        others = [name for name in candidates if name != place[-1]]
        if close := get_close_matches(str(place[-1])[:100], others, n=1, cutoff=0.7):
            return close[0]
    return None


def _place(raw: Any, location: tuple[int | str, ...], tag: int, keep_last: bool) -> Place:
    """Return the place in the file: pydantic's without its tags."""
    parts = [part for i, part in enumerate(location) if not (i == tag and part in KINDS)]
    place: Place = ()
    for i, part in enumerate(parts):
        inside = isinstance(raw, Mapping) and part in raw
        inside = inside or (isinstance(raw, list) and isinstance(part, int) and part < len(raw))
        if inside:
            raw = raw[part]
        if inside or (keep_last and i == len(parts) - 1):
            place = (*place, part)
    return place


def _keys(schema: Mapping[str, Any], place: Place) -> list[str]:
    """Return the keys that a JSON schema allows at a place."""
    nodes = list(_branches(schema, schema))
    for part in place:
        inner: list[Mapping[str, Any]] = []
        for node in nodes:
            one = node.get("properties", {}).get(part) or node.get("additionalProperties")
            patterns = node.get("patternProperties", {}).values()
            for child in (one, *patterns):
                inner += _branches(schema, child) if isinstance(child, Mapping) else []
        nodes = inner
    return [key for node in nodes for key in node.get("properties", {})]


def _branches(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema with its references resolved, and every alternative of a union."""
    if "$ref" in node:
        yield from _branches(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    elif alternatives := node.get("anyOf", node.get("oneOf")):
        for one in alternatives:
            yield from _branches(schema, one)
    else:
        yield node
