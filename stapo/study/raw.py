"""What a study says before it is checked: raw input, which may have any structure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from stapo.methods import PARENTS
from stapo.study.fields import Seed, Steps, Whole
from stapo.study.validation import Problem

WHOLE: TypeAdapter[int] = TypeAdapter(Whole)
STEPS: TypeAdapter[int] = TypeAdapter(Steps)
SEED: TypeAdapter[int] = TypeAdapter(Seed)


def section_of(raw: Mapping[str, Any], *keys: str | int) -> Mapping[str, Any]:
    """Return a section of raw input, empty if it is missing."""
    found: Any = raw
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def names_in(section: Mapping[str, Any], key: str | None = None) -> list[str]:
    """Return the texts of a list, or the keys of a section."""
    value = section if key is None else section.get(key)
    return (
        [one for one in value if isinstance(one, str)] if isinstance(value, list | Mapping) else []
    )


def list_in(raw: Mapping[str, Any], *keys: str) -> list[Any]:
    """Return a list of raw input, empty if it is missing."""
    value = section_of(raw, *keys[:-1]).get(keys[-1])
    return value if isinstance(value, list) else []


def given_in(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not null, since null means inherited."""
    return {key: value for key, value in section.items() if value is not None}


def number_of(value: Any, kind: TypeAdapter[int] = WHOLE) -> int | None:
    """Return the number that a field accepts, also from 8.0 or "8"; None if it is invalid."""
    try:
        return kind.validate_python(value)
    except ValidationError:
        return None


def repeated_names(
    place: tuple[str, ...], names: list[str], key: Callable[[str], str], reason: str
) -> Iterator[Problem]:
    """Yield a problem for each name of a list that repeats an earlier one.

    Args:
        place: place of the list.
        names: its names.
        key: what two names must not have in common.
        reason: why two different names with the same key are wrong, with a remedy.
    """
    first: dict[str, str] = {}
    for name in names:
        other = first.get(key(name))
        if other == name:
            yield place, f"{name!r} is listed twice; remove one"
        elif other is not None:
            yield place, f"{other!r} and {name!r} {reason}"
        first.setdefault(key(name), name)


def base_of(raw: Mapping[str, Any], name: str) -> Any:
    """Return the base of a method in the study; a method without one is its own."""
    base = section_of(raw, "methods", name).get("base")
    return name if base is None else base


def lineage(raw: Mapping[str, Any], name: str) -> list[Any]:
    """Return a method, its base, the base of its base and so on; in a cycle, the last one occurs twice."""
    line: list[Any] = [name]
    while True:
        base = base_of(raw, line[-1])
        if base == line[-1]:
            base = PARENTS.get(base, base)
        if base == line[-1]:
            return line
        line.append(base)
        if not isinstance(base, str) or base in line[:-1]:
            return line


def has_own_selection(raw: Mapping[str, Any], line: list[Any]) -> bool:
    """Return whether a method or one of its bases has a token selection of the study's own."""
    return any(
        section_of(raw, "methods", one).get("selection") for one in line if isinstance(one, str)
    )
