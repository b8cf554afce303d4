"""Kinds of tokens by their text alone, for vocabularies in which nearly every rare token is another one.

A word begins with a blank, as byte-level BPE cuts words; the first word of a line has none, and counts as a
piece. Of old records, U+FFFD is a part of a character. The kinds are our choice.
"""

import re

SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")
"""Such as `<|im_end|>`, `</s>` and `[PAD]`; tokenizers do not join brackets and letters otherwise."""
PART = re.compile(r"\\x[89a-f][0-9a-f]|\ufffd")
"""A byte of a character, as records spell it."""
KINDS = ("number", "word", "word piece", "sign", "blank", "special", "part of a character")


def kind(token_text: str) -> str:
    """Return the kind of a token, one of `KINDS`."""
    text = token_text.strip()
    if not text:
        return "blank"
    if SPECIAL.fullmatch(text):
        return "special"
    if PART.search(text):
        return "part of a character"
    if any(character.isalpha() for character in text):
        return "word" if token_text[0].isspace() else "word piece"
    return "number" if any(character.isnumeric() for character in text) else "sign"
