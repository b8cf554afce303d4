"""Attention over sequences that lie behind one another in one row, without padding.

Registered with Transformers under the name `PACKED`. A pass that gives the borders of its sequences
(`cu_seq_lens_q` and `max_length_q`, Transformers' names for flash attention) uses them; every other pass,
such as generation, is that of `sdpa`.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface

SDPA = AttentionInterface()["sdpa"]
TAKES_GROUPS = "enable_gqa" in signature(varlen_attn).parameters
"""Whether the kernel takes grouped queries; that of torch 2.11 does not: keys and values are repeated."""
PACKED = "stapo_packed"
"""Value of `attn_implementation`."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return causal attention, of each sequence to itself.

    Args:
        module: attention layer.
        query: (1, H, N, D) with borders; otherwise as for `sdpa`, like everything below.
        key: (1, G, N, D), where G divides H.
        value: (1, G, N, D).
        attention_mask: unused with borders.
        cu_seq_lens_q: (R + 1,) int32, where each sequence starts, and N.
        max_length_q: length of the longest sequence.
        scaling: factor of the attention scores.
        **others: for `sdpa`.
    """
    if cu_seq_lens_q is None or max_length_q is None:
        masked: tuple[Tensor, None] = SDPA(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
        return masked
    grouped = query.shape[1] != key.shape[1]
    if query.device.type != "cpu":
        # Under autocast queries and keys are float32, made by their norms; the kernel is no part of autocast.
        q, k, v = (table[0].transpose(0, 1).to(value.dtype) for table in (query, key, value))
        groups: dict[str, Any] = {"enable_gqa": grouped} if TAKES_GROUPS else {}
        if grouped and not TAKES_GROUPS:
            heads = query.shape[1] // key.shape[1]
            k, v = (table.repeat_interleave(heads, dim=1) for table in (k, v))
        ends, longest, causal = cu_seq_lens_q, max_length_q, (-1, 0)
        packed = varlen_attn(
            q, k, v, ends, ends, longest, longest, scale=scaling, window_size=causal, **groups
        )
        assert isinstance(packed, Tensor)  # It has no second output unless asked.
        return packed.unsqueeze(0), None
    parts = []
    for start, end in cu_seq_lens_q.unfold(0, 2, 1).tolist():
        q, k, v = (table[:, :, start:end] for table in (query, key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        parts.append(attend(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped))
    return torch.cat(parts, dim=2).transpose(1, 2), None


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, AttentionMaskInterface()["sdpa"])
