"""Texts of tokens that tables and the report have in common."""

from typing import Any

WHITE = {" ": "\u2423", "\n": "\u21b5", "\t": "\u21e5"}
"""White space -> the sign that stands for it where a token is shown alone."""


def literal(token: str) -> str:
    """Return a token with signs for its white space, so that every token can be seen."""
    return "".join(WHITE.get(character, character) for character in token)


def top_text(tokens: Any, probabilities: Any) -> str:
    """Return the most likely tokens with their probabilities in percent; empty if they are unknown."""
    if tokens is None or probabilities is None:
        return ""
    pairs = zip(tokens, probabilities, strict=True)
    return ", ".join(f"{literal(token)} {100 * float(p):.3g}" for token, p in pairs)
