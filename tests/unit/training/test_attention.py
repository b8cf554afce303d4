"""Attention over packed sequences, against an explicit mask in double precision."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, MistralConfig, Qwen3Config

from stapo.models.decoding import has_full_attention
from stapo.training.attention import packed_attention

HEADS, GROUPS, SIZE = 4, 2, 8
LENGTHS = [5, 1, 7, 3]
BORDERS = torch.tensor([0, 5, 6, 13, 16], dtype=torch.int32)


def layer() -> torch.nn.Module:
    module = torch.nn.Module()
    module.num_key_value_groups = HEADS // GROUPS
    return module


def tables(length: int = sum(LENGTHS), **settings: Any) -> list[Tensor]:
    heads = (HEADS, GROUPS, GROUPS)
    return [torch.randn(1, number, length, SIZE, **settings) for number in heads]


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return softmax attention (1, N, H, D) with a mask (N, N)."""
    key, value = (table.repeat_interleave(HEADS // GROUPS, dim=1) for table in (key, value))
    scores = (query @ key.transpose(2, 3) * 0.3).masked_fill(~mask, -torch.inf)
    return (scores.softmax(dim=-1) @ value).transpose(1, 2)


def test_each_sequence_attends_to_its_own_earlier_tokens_only():
    torch.manual_seed(0)
    own = [table.double().requires_grad_() for table in tables()]
    found, weights = packed_attention(
        layer(), *own, None, cu_seq_lens_q=BORDERS, max_length_q=7, scaling=0.3
    )
    sequence = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))
    mask = (sequence.unsqueeze(1) == sequence).tril()
    expected = masked_attention(*own, mask)
    assert weights is None
    # Double precision.
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(one, own, slope) for one in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


SHAPE: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
}  # fmt: skip


def test_models_with_windows_cannot_pack():
    windows = Qwen3Config(**SHAPE, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert has_full_attention(AutoModelForCausalLM.from_config(Qwen3Config(**SHAPE)))
    assert not has_full_attention(AutoModelForCausalLM.from_config(windows))
    assert not has_full_attention(
        AutoModelForCausalLM.from_config(MistralConfig(**SHAPE, sliding_window=4))
    )
