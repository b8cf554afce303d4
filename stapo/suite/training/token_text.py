r"""The text of tokens, by the tokenizer; a part of a character is shown by its bytes, such as `\xe2\x80`.

Byte-level BPE splits characters, and others spell unknown characters as bytes: tokenizers decode each such
part as U+FFFD, so that hundreds of tokens look the same.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

REPLACEMENT = "\ufffd"
FALLBACK = re.compile("<0x([0-9A-F]{2})>")
"""A byte in a vocabulary of characters."""
WORD_START = "\u2581"
"""What begins a word in such a vocabulary; decoders drop the blank at the beginning of a text."""


ALPHABET = {character: byte for byte, character in bytes_to_unicode().items()}
"""Character -> byte, as byte-level BPE writes bytes."""


def text_of(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Return a function from ids to their text, special tokens included."""
    added = {*tokenizer.get_added_vocab().values()}
    is_byte_level = "<0x00>" not in tokenizer.get_vocab()

    def piece_of(token_id: int) -> str:
        # A model may have more ids than its tokenizer has tokens: its vocabulary is padded.
        piece: str = tokenizer.convert_ids_to_tokens(token_id) or ""
        return piece

    def spelled(token_id: int) -> bytes:
        """Return the bytes of a token."""
        piece = piece_of(token_id)
        if byte := FALLBACK.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        if is_byte_level and token_id not in added and ALPHABET.keys() >= {*piece}:
            return bytes(ALPHABET[character] for character in piece)
        return piece.replace(WORD_START, " ").encode()

    def read(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        if REPLACEMENT in text:
            return b"".join(map(spelled, ids)).decode(errors="backslashreplace")
        if len(ids) and piece_of(ids[0]).startswith(WORD_START):
            return text if text.startswith(" ") else f" {text}"
        return text

    return read
