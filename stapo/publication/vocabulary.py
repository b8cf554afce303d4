"""Bounds for the number of tokens of a text, from the published vocabulary; no published tokenizer is run."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stapo import paths
from stapo.models.arithmetic import VOCABULARY
from stapo.publication import untrusted
from stapo.publication.folder import FILE_BYTES, Results
from stapo.study import Checkpoint
from stapo.study.sources import TinyModel

TOKENIZER = "tokenizer.json"
IDS = {token: number for number, token in enumerate(VOCABULARY)}
TINY = re.compile("|".join(re.escape(token) for token in sorted(VOCABULARY, key=len, reverse=True)))


@dataclass(frozen=True)
class Vocabulary:
    """Bounds for the number of tokens of a response, including its end token."""

    longest: int
    """Maximum UTF-8 bytes of a token."""
    count: Callable[[str], int] | None = None
    """Exact number of tokens, if the tokenizer is ours.

    Raises:
        RefusedError: the tokenizer cannot produce the text.
    """

    def bounds(self, text: str, truncated: bool) -> tuple[int, int]:
        """Return minimum and maximum number of tokens, without special tokens that no text shows."""
        end = int(not truncated)
        if self.count is not None:
            own = self.count(text) + end
            return own, own
        size = len(text.encode(errors="replace"))
        return -(-size // self.longest) + end, size + end


def vocabulary(results: Results, checkpoint: Checkpoint) -> Vocabulary | None:
    """Return the vocabulary of a checkpoint, None if the folder has no readable one."""
    if isinstance(results.study.models[checkpoint.size], TinyModel):
        return Vocabulary(1, _tiny_count)
    try:
        content = _tokenizer(results, checkpoint)
        added = [token["content"] for token in content.get("added_tokens", [])]
        # A letter stands for one byte in byte-level vocabularies, and for up to 4 bytes in others.
        longest = max(4 * len(token) for token in (*content["model"]["vocab"], *added))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Vocabulary(max(longest, 4))


def token_texts(results: Results, checkpoint: Checkpoint) -> Mapping[int, str] | None:
    """Return token id -> text of a checkpoint; None if the folder has no readable byte-level vocabulary."""
    if isinstance(results.study.models[checkpoint.size], TinyModel):
        return dict(enumerate(VOCABULARY))
    try:
        content = _tokenizer(results, checkpoint)
        if content["decoder"]["type"] != "ByteLevel":
            return None
        letters = _letters()
        texts = {
            number: bytes(letters[letter] for letter in token).decode(errors="replace")
            for token, number in content["model"]["vocab"].items()
        }
        return texts | {one["id"]: one["content"] for one in content["added_tokens"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _tokenizer(results: Results, checkpoint: Checkpoint) -> Any:
    """Return the content of a checkpoint's tokenizer.

    Raises:
        LookupError: the folder has none.
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    base = paths.RESULTS.format(study=results.study.name) + "/"
    place = paths.checkpoint_path(results.study.name, checkpoint).removeprefix(base)
    return untrusted.read_json(results.files[f"{place}/{TOKENIZER}"], FILE_BYTES)


def _letters() -> dict[str, int]:
    """Return letter -> byte of byte-level vocabularies; visible characters of Latin-1 are themselves."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


def tiny_ids(text: str) -> list[int] | None:
    """Return the token ids of a text of the tiny models, None if they cannot produce it."""
    found = TINY.findall(text)
    return [IDS[token] for token in found] if "".join(found) == text else None


def _tiny_count(text: str) -> int:
    ids = tiny_ids(text)
    if ids is None:
        raise untrusted.RefusedError("contains text that this model has no tokens for")
    return len(ids)
