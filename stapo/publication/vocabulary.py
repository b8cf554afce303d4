"""How many tokens a text can have, by the vocabulary that lies in the folder; no tokenizer of it is run."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stapo import paths
from stapo.models.arithmetic import VOCABULARY
from stapo.publication import untrusted
from stapo.publication.results import FILE_BYTES, Results
from stapo.study.schema import TinyModel

TOKENIZER = "tokenizer.json"
IDS = {token: number for number, token in enumerate(VOCABULARY)}
TINY = re.compile("|".join(re.escape(token) for token in sorted(VOCABULARY, key=len, reverse=True)))


@dataclass(frozen=True)
class Vocabulary:
    """What bounds the number of tokens of a response, its end token included."""

    longest: int
    """UTF-8 bytes of a token, at most."""
    count: Callable[[str], int] | None = None
    """Counts exactly, where the tokenizer is ours.

    Raises:
        RefusedError: it cannot have written the text.
    """

    def bounds(self, text: str, truncated: bool) -> tuple[int, int]:
        """Return the least and the most tokens; special ones inside, which no text shows, come on top."""
        end = int(not truncated)
        if self.count is not None:
            own = self.count(text) + end
            return own, own
        size = len(text.encode(errors="replace"))
        return -(-size // self.longest) + end, size + end


def vocabulary(results: Results, checkpoint: str) -> Vocabulary | None:
    """Return the vocabulary of a checkpoint, None where the folder has none that is understood."""
    size = checkpoint.split("/")[0]
    if isinstance(results.study.models[size], TinyModel):
        return Vocabulary(1, _tiny_count)
    base = paths.RESULTS.format(study=results.study.name) + "/"
    place = paths.checkpoint_path(results.study.name, checkpoint).removeprefix(base)
    file = results.files.get(f"{place}/{TOKENIZER}")
    if file is None:
        return None
    try:
        content: Any = untrusted.read_json(file, FILE_BYTES)
        added = [token["content"] for token in content.get("added_tokens", [])]
        # Byte-level vocabularies write a byte as a letter, others a letter as itself: up to 4 bytes.
        longest = max(4 * len(token) for token in (*content["model"]["vocab"], *added))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Vocabulary(max(longest, 4))


def tiny_ids(text: str) -> list[int] | None:
    """Return the tokens of a text in the tiny world, None for one that it cannot write."""
    found = TINY.findall(text)
    return [IDS[token] for token in found] if "".join(found) == text else None


def _tiny_count(text: str) -> int:
    ids = tiny_ids(text)
    if ids is None:
        raise untrusted.RefusedError("a text that this model has no tokens for")
    return len(ids)
