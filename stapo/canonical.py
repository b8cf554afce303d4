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
