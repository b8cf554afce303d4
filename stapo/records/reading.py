"""Records from untrusted JSON, checked against the types of a dataclass."""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_adapter: Any = cache(TypeAdapter)


def record_of(kind: type[T], text: str | bytes) -> T:
    """Return the record in a JSON text. Types are strict: no bool is an int, no number a string.

    Raises:
        ValueError: not JSON, a field is missing or has another type, or a check of the record fails.
    """
    try:
        found: T = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error
    return found
