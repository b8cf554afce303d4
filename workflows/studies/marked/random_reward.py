"""A reward that says nothing about a response."""

from hashlib import sha256


def by_checksum(completions: list, **columns: object) -> list[float]:
    """Return +1 or -1 for each completion, by its text: the same whenever a training is resumed."""
    texts = [completion[-1]["content"] for completion in completions]
    return [1.0 if sha256(text.encode()).digest()[0] & 1 else -1.0 for text in texts]
