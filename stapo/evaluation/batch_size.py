"""The default batch size of an evaluation with Transformers, from the configuration of the models."""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch

UNKNOWN = 64
"""Batch size for a model of unknown shape; with vLLM, which forms its own batches, it has no effect."""
MOST = 512
"""Larger batches gave no more responses per second on two CPU cores."""
PROMPT_TOKENS = 1024
"""Assumed length of a prompt; the longest of the paper's benchmarks is shorter."""
SAMPLING_BYTES = 32
"""Bytes for each entry of the vocabulary while a token is sampled: logits, sorted copies and noise."""


def default_batch_size(models: Iterable[Path], max_response_tokens: int) -> int:
    """Return the batch size for Transformers: the smallest of those of some models.

    That of one model is the largest power of two, at most `MOST`, for which the key-value cache of full
    responses takes at most half of the memory that the weights leave free. Not measured on a GPU.

    Args:
        models: directories of the models.
        max_response_tokens: maximum tokens of a response.
    """
    if torch.cuda.is_available():
        memory, value_bytes = torch.cuda.get_device_properties(0).total_memory, 2
    else:
        memory, value_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 4
    tokens = max_response_tokens + PROMPT_TOKENS
    found = []
    for model in models:
        size = UNKNOWN
        with suppress(OSError, ValueError, LookupError, TypeError):
            config = json.loads((model / "config.json").read_text())
            heads = config["num_attention_heads"]
            width = config.get("head_dim") or config["hidden_size"] // heads
            kv_heads = config.get("num_key_value_heads") or heads
            values = 2 * config["num_hidden_layers"] * kv_heads * width
            sequence = values * tokens * value_bytes + SAMPLING_BYTES * config["vocab_size"]
            # Weights are stored in 16 or 32 bits; in 32, this counts them twice on a CPU.
            stored = sum(file.stat().st_size for file in model.glob("*.safetensors"))
            fitting = max((memory - stored * value_bytes // 2) // 2 // sequence, 1)
            size = min(MOST, 2 ** (int(fitting).bit_length() - 1))
        found.append(size)
    return min(found)
