"""Errors of pydantic, rewritten as one line for each place, in the terms of the study file."""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from stapo.study.fields import IN_WORDS
from stapo.study.loader import Place, Problem
from stapo.text import shorten

MAX_SHOWN = 60
"""Maximum characters of a value in an error message."""


def field_problems(
    error: ValidationError, raw: Any, schema: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield one problem for each place of pydantic's errors.

    An unknown key that resembles a missing or a known one is reported as a misspelling, in one line.

    Args:
        error: pydantic's error.
        raw: the validated value.
        schema: JSON schema of the expected type.
    """
    found: dict[Place, list[str]] = {}
    missing: dict[Place, str] = {}
    extra: list[Place] = []
    for one in error.errors(include_url=False):
        place = _place(raw, one["loc"])
        if one["type"] == "missing":
            missing[(*place, one["loc"][-1])] = "missing; add it"
        elif one["type"] == "extra_forbidden":
            extra.append(place)
        else:
            message = IN_WORDS.get(str(one.get("ctx", {}).get("pattern")), "")
            if one["type"] in ("model_type", "model_attributes_type", "dict_type"):
                message = "a mapping of names to values"
            if one["type"] == "string_type":
                message = "text; put it in quotes"
            message = f"expected {message}" if message else one["msg"]
            message = message.removeprefix("Value error, ")
            found.setdefault(place, []).append(f"{message} (found {shown(one['input'])})")
    for place in extra:
        beside = [str(at[-1]) for at in missing if at[:-1] == place[:-1]]
        meant = close_name(place[-1], beside) or close_name(place[-1], _keys(raw, place, schema))
        hint = f"did you mean {meant}?" if meant else "remove it or correct its spelling"
        yield place, f"unknown key; {hint}"
        missing.pop((*place[:-1], meant or ""), None)
    yield from missing.items()
    # A union has one error for each of its types.
    for place, messages in found.items():
        yield place, " or ".join(dict.fromkeys(messages))


def _keys(raw: Any, place: Place, schema: Mapping[str, Any]) -> Iterable[str]:
    """Return the keys of the part of a JSON schema that has most of the keys beside a place."""
    for part in place[:-1]:
        raw = raw[part]
    parts = (schema, *schema.get("$defs", {}).values())
    found = [one.get("properties", {}).keys() for one in parts]
    return max(found, key=lambda keys: len(keys & raw.keys()))


def close_name(name: Any, known: Iterable[str]) -> str:
    """Return the known name that was probably meant, empty if none resembles it."""
    others = [one for one in known if one != name]
    return next(iter(get_close_matches(str(name)[:100], others, n=1, cutoff=0.7)), "")


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
