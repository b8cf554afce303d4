"""A forward pass over some sequences of a batch in which the responses to a prompt share the pass over it.

The G responses to a prompt of P tokens, each of T, need about P + G T positions instead of G (P + T), and an
attention of their own, `SHARED`; every pass without `prompts`, such as generation, is that of `sdpa`.

R sequences of the pass, N positions.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from stapo.core.forward import IGNORED, SDPA, Sequences
from stapo.core.head import log_probs_of
from stapo.core.minibatch import Layout

SHARED = "stapo_shared_prompts"
"""Value of `attn_implementation`."""


class Prompt(NamedTuple):
    """Where a prompt and its responses are: the prompt, then one response behind another.

    The last token of the prompt is the first one of each response, since it predicts all of them.
    """

    start: int
    prefix: int
    """Tokens of the prompt, but the last one."""
    responses: int
    length: int
    """Positions of each response."""


class Shared(NamedTuple):
    """The positions of a pass."""

    ids: Tensor
    """(N,) token ids."""
    positions: Tensor
    """(N,) positions in their sequences."""
    targets: Tensor
    """(N,) id of the next token, `IGNORED` where that is none of a response."""
    first: Tensor
    """(R,) position that predicts the first token of each response; the next ones follow."""
    prompts: list[Prompt]


def shared(sequences: Sequences) -> Shared:
    """Return the positions of a pass over sequences (R,)."""
    width, device = sequences.width, sequences.ids.device
    last = sequences.ids.shape[1] - width - 1
    labels = sequences.ids.masked_fill(sequences.mask == 0, IGNORED)
    lengths = sequences.mask[:, last + 1 :].sum(dim=1).tolist()
    rows_by_prompt: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(labels[:, : last + 1].tolist()):
        rows_by_prompt.setdefault(tuple(prompt), []).append(row)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    first = torch.empty(len(lengths), dtype=torch.long, device=device)
    prompts, start = list[Prompt](), 0
    for rows in rows_by_prompt.values():
        prefix = int(sequences.mask[rows[0], : last + 1].sum()) - 1
        # At least one position, since a row whose response is completely masked has no token.
        length = max(1, *(lengths[row] for row in rows))
        prompts.append(Prompt(start, prefix, len(rows), length))
        places = torch.arange(prefix + length, device=device)
        given = sequences.ids[rows, last : last + length].flatten()
        targets = labels[rows, last + 1 : last + 1 + length].flatten()
        ids = torch.cat([sequences.ids[rows[0], last - prefix : last], given])
        positions = torch.cat([places[:prefix], places[prefix:].repeat(len(rows))])
        parts.append((ids, positions, torch.cat([targets.new_full((prefix,), IGNORED), targets])))
        first[rows] = start + prefix + length * torch.arange(len(rows), device=device)
        start += prefix + len(rows) * length
    ids, positions, targets = (torch.cat(part) for part in zip(*parts, strict=True))
    return Shared(ids, positions, targets, first, prompts)


def shared_forward(
    model: Any, sequences: Sequences, min_p: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return what `packed_forward` does; the model has the attention `SHARED`."""
    laid = shared(sequences)
    output = log_probs_of(
        model,
        min_p,
        input_ids=laid.ids.unsqueeze(0),
        position_ids=laid.positions.unsqueeze(0),
        # A mask with four dimensions is handed on as it is; without one, N x N would be made.
        attention_mask=laid.ids.new_ones((1, 1, 1, 1)),
        shift_labels=laid.targets.unsqueeze(0),
        prompts=laid.prompts,
    )
    places = laid.first.unsqueeze(1) + torch.arange(sequences.width, device=laid.first.device)
    places, inside = places.clamp(max=len(laid.ids) - 1), sequences.mask[:, -sequences.width :] != 0

    def to_rows(values: Tensor) -> Tensor:
        values = values.squeeze(0).float()[places]
        return torch.where(inside, values, values.new_zeros(()))

    entropy = output.entropy
    return to_rows(output.log_probs), None if entropy is None else to_rows(entropy)


def first_predicting(sequences: Sequences, layout: Layout) -> Tensor:
    """Return which hidden state of a pass predicts the first token of each response; the next ones follow.

    They are (R,) indices into the hidden states of all rows of the pass, one behind another.
    """
    if layout == "shared":
        return shared(sequences).first
    width, mask = sequences.width, sequences.mask
    if layout == "packed":
        return mask.sum(dim=1).cumsum(0) - mask[:, -width:].sum(dim=1) - 1
    return torch.arange(len(mask), device=mask.device) * mask.shape[1] + mask.shape[1] - width - 1


def shared_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    prompts: list[Prompt] | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return causal attention, of each prompt to itself and of each response to its prompt and itself.

    Without `prompts` it is that of `sdpa`. The query is (1, H, N, D), key and value are (1, G, N, D), where G
    divides H.
    """
    if prompts is None:
        return SDPA(module, query, key, value, attention_mask, scaling=scaling, **others)
    attend = partial(
        scaled_dot_product_attention, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    parts = []
    for start, prefix, responses, length in prompts:
        before = [table[:, :, start : start + prefix] for table in (query, key, value)]
        if prefix:
            parts.append(attend(before[0], before[1], before[2], is_causal=True))
        first, end = start + prefix, start + prefix + responses * length
        # (responses, heads, length, D)
        q, k, v = (
            table[0, :, first:end].reshape(-1, responses, length, table.shape[3]).transpose(0, 1)
            for table in (query, key, value)
        )
        k, v = (
            torch.cat([table.expand(responses, -1, -1, -1), suffix], dim=2)
            for table, suffix in zip(before[1:], (k, v), strict=True)
        )
        seen = torch.ones(length, prefix + length, dtype=torch.bool, device=q.device).tril(prefix)
        output = attend(q, k, v, attn_mask=seen)
        parts.append(output.transpose(0, 1).flatten(1, 2).unsqueeze(0))
    return torch.cat(parts, dim=2).transpose(1, 2), None


AttentionInterface.register(SHARED, shared_attention)
AttentionMaskInterface.register(SHARED, AttentionMaskInterface()["sdpa"])
