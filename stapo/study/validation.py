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
KINDS = {
    "model_type": "expected a mapping of names to values",
    "model_attributes_type": "expected a mapping of names to values",
    "dict_type": "expected a mapping of names to values",
    "string_type": "expected text; put it in quotes",
}
"""Kind of an error of pydantic -> what is said of it."""


def field_problems(
    error: ValidationError, raw: Any, schema: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield one problem for each place of pydantic's errors.

    An unknown key that resembles a known one is reported as a misspelling.

    Args:
        error: pydantic's error.
        raw: the validated value.
        schema: JSON schema of a study.
    """
    parts = (schema, *schema.get("$defs", {}).values())
    known = sorted({key for part in parts for key in part.get("properties", ())})
    # A union has one error for each of its types.
    found: dict[Place, dict[str, None]] = {}
    for one in error.errors(include_url=False):
        place = _place(raw, one["loc"])
        if one["type"] == "missing":
            place, about = (*place, one["loc"][-1]), "missing; add it"
        elif one["type"] == "extra_forbidden":
            meant = close_name(place[-1], known)
            hint = f"did you mean {meant}?" if meant else "remove it or correct its spelling"
            about = f"unknown key; {hint}"
        else:
            words = IN_WORDS.get(str(one.get("ctx", {}).get("pattern")))
            message = f"expected {words}" if words else KINDS.get(one["type"], one["msg"])
            about = f"{message.removeprefix('Value error, ')} (found {shown(one['input'])})"
        found.setdefault(place, {})[about] = None
    for place, messages in found.items():
        yield place, " or ".join(messages)


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
