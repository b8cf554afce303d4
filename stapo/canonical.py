"""Canonical JSON of values, and their fingerprints."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """Return a value as canonical JSON: sorted keys, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return 16 hex digits of the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their places, such as `training.learning_rate`.

    Lists, and mappings without keys, are values.
    """
    if not isinstance(value, dict) or not value:
        return {place: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= leaves(inner, f"{place}.{key}" if place else str(key))
    return found
