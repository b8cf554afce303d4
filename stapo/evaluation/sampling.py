"""Requests to a checkpoint: one per problem and sample, each with its own seed.

The seed is a hash of the benchmark row and the index of the sample. It does not depend on the method, on
other problems or on the number of samples, so a larger N adds responses and changes none.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo.files import canonical, fingerprint
from stapo.models.loading import end_token_ids, load_tokenizer
from stapo.study.schema import Decoding, Evaluation


@dataclass(frozen=True)
class Request:
    """Request for one response."""

    problem: int
    """Index of the benchmark row."""
    sample: int
    seed: int
    prompt_ids: tuple[int, ...]
    benchmark: str = ""
    """Name of the benchmark, where several are answered together."""


@dataclass(frozen=True)
class Sampling:
    """All sampling parameters of a backend; none is read from a model's generation_config."""

    temperature: float
    """Temperature; 0 means greedy decoding."""
    top_p: float
    top_k: int
    """Number of likeliest tokens to sample from; 0 means all."""
    max_response_tokens: int
    eos_token_ids: tuple[int, ...]


def sample_seed(salt: int, question: str, gold: str, sample: int) -> int:
    """Return the 63-bit seed of a sample of a benchmark row; `salt` is the seed of the study's evaluation."""
    digest = hashlib.sha256(canonical([salt, question, gold, sample]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Prompter:
    """Converts questions to token ids with a checkpoint's own chat template."""

    def __init__(self, model: Path | str, end_tokens: Sequence[str]) -> None:
        self.tokenizer: Any = load_tokenizer(model)
        self.eos_token_ids = end_token_ids(self.tokenizer, end_tokens)

    def identity(self) -> dict[str, Any]:
        """Return everything except the question that determines a prompt and the end of a response."""
        template = fingerprint(self.tokenizer.chat_template)
        return {"chat_template": template, "eos_token_ids": list(self.eos_token_ids)}

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a chat with one user turn."""
        chat = [{"role": "user", "content": text}]
        ids = self.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_dict=False
        )
        return tuple(ids)

    def sampling(self, decoding: Decoding, evaluation: Evaluation) -> Sampling:
        """Return the sampling parameters for a decoding."""
        limit = evaluation.max_response_tokens
        return Sampling(
            decoding.temperature, decoding.top_p, decoding.top_k, limit, self.eos_token_ids
        )
