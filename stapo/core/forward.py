"""A forward pass over some sequences of a batch: padded to the longest, or packed behind one another.

Both give the same log-probs and entropies. Padding computes more positions than there are tokens; packing
needs an attention of its own, `PACKED`. A pass that gives the borders of its sequences (`cu_seq_lens_q` and
`max_length_q`, Transformers' names for flash attention) uses them; every other one is that of `sdpa`.

B sequences of the batch, R sequences of the pass, P prompt and T response positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface

from stapo.core.head import log_probs_of

IGNORED = -100
"""Label of positions that are not scored."""
SDPA: Callable[..., tuple[Tensor, None]] = AttentionInterface()["sdpa"]
TAKES_GROUPS = "enable_gqa" in signature(varlen_attn).parameters
"""Whether the kernel takes grouped queries; that of torch 2.11 does not: keys and values are repeated."""
PACKED = "stapo_packed"
"""Value of `attn_implementation`."""


@dataclass(frozen=True)
class Sequences:
    """Prompts, padded on the left, and responses, padded on the right."""

    ids: Tensor
    """(B, P + T) token ids."""
    mask: Tensor
    """(B, P + T) 1 on prompt and response tokens."""
    width: int
    """T."""

    def take(self, rows: Tensor) -> "Sequences":
        """Return sequences (R,), trimmed to the longest prompt and response of them.

        With R = 0 the shortest sequence is taken, to take part in a pass of the other ranks.
        """
        if len(rows) == 0:
            rows = self.mask.sum(dim=1).argmin().unsqueeze(0)
        mask = self.mask[rows]
        longest_prompt = int(mask[:, : -self.width].sum(dim=1).max())
        # At least one position, since a row whose response is completely masked has no token.
        longest_response = max(int(mask[:, -self.width :].sum(dim=1).max()), 1)
        first = self.ids.shape[1] - self.width - longest_prompt
        last = self.ids.shape[1] - self.width + longest_response
        return Sequences(self.ids[rows, first:last], mask[:, first:last], longest_response)


def padded_forward(
    model: Any, sequences: Sequences, min_p: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return (R, T) log-probs and entropies of responses, arbitrary behind them, computed row by row.

    The model has TRL's fused head; a reference model has no entropies. With `min_p`, the log-probs are those
    of a proxy (see `log_probs_of`), without entropies.
    """
    width = sequences.width
    labels = sequences.ids.masked_fill(sequences.mask == 0, IGNORED)
    labels[:, :-width] = IGNORED
    given = {"input_ids": sequences.ids, "attention_mask": sequences.mask, "labels": labels}
    if _takes_positions(model):
        # Otherwise those of models with learned positions would depend on the longest prompt of the pass.
        given["position_ids"] = (sequences.mask.cumsum(dim=1) - 1).clamp(min=0)
    output = log_probs_of(model, min_p, **given)
    logps, entropy = output.log_probs[:, -width:].float(), output.entropy
    return logps, None if entropy is None else entropy[:, -width:].float()


def _takes_positions(model: Any) -> bool:
    """Return whether the model that a wrapper may hold takes the position of each token."""
    inside = extract_model_from_parallel(model)
    return "position_ids" in signature(getattr(inside, "base_model", inside).forward).parameters


def packed_forward(
    model: Any, sequences: Sequences, min_p: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return what `padded_forward` does, 0 behind a response, by the attention `PACKED` without padding."""
    mask = sequences.mask.bool()
    lengths = mask.sum(dim=1)
    borders = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    labels = sequences.ids.masked_fill(~mask, IGNORED)
    labels[:, : -sequences.width] = IGNORED
    # Each position predicts the next one of its row.
    scored = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)[mask]
    positions = (mask.cumsum(dim=1) - 1)[mask]
    longest = int(lengths.max())
    output = log_probs_of(
        model,
        min_p,
        input_ids=sequences.ids[mask].unsqueeze(0),
        position_ids=positions.unsqueeze(0),
        # A mask with four dimensions is handed on as it is; without one, N x N would be made.
        attention_mask=labels.new_ones((1, 1, 1, 1)),
        shift_labels=scored.unsqueeze(0),
        cu_seq_lens_q=borders,
        cu_seq_lens_k=borders,
        max_length_q=longest,
        max_length_k=longest,
    )
    responses = mask[:, -sequences.width :]

    def unpacked(values: Tensor) -> Tensor:
        values = values.squeeze(0)[scored != IGNORED].float()
        # Stays connected to the model where no response has a token.
        return values.new_zeros(responses.shape).masked_scatter(responses, values)

    entropy = output.entropy
    return unpacked(output.log_probs), None if entropy is None else unpacked(entropy)


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
    """Return causal attention, of each sequence to itself; without borders, that of `sdpa`.

    With borders, the query is (1, H, N, D), key and value are (1, G, N, D), where G divides H; the borders
    are (R + 1,) int32, where each sequence starts, and N.
    """
    if cu_seq_lens_q is None or max_length_q is None:
        return SDPA(module, query, key, value, attention_mask, scaling=scaling, **others)
    grouped = query.shape[1] != key.shape[1]
    if query.device.type != "cpu":
        # Under autocast queries and keys are float32, made by their norms; the kernel is no part of autocast.
        q, k, v = (table[0].transpose(0, 1).to(value.dtype) for table in (query, key, value))
        ends, longest, causal = cu_seq_lens_q, max_length_q, (-1, 0)
        groups: dict[str, Any] = {"enable_gqa": grouped} if TAKES_GROUPS else {}
        if grouped and not TAKES_GROUPS:
            heads = query.shape[1] // key.shape[1]
            k, v = (table.repeat_interleave(heads, dim=1) for table in (k, v))
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
