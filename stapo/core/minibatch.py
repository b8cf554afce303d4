"""A mini-batch, and its division among ranks and into micro-batches.

B sequences, T response positions. The division does not change the result: it only decides where sequences
are computed, and which together.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import torch
from torch import Tensor

Layout = Literal["padded", "packed", "shared"]
"""Of the sequences of a pass: see `stapo.core.forward` and `stapo.core.shared_prompts`."""


Lengths = tuple[Tensor, Tensor]
"""(B,) tokens of each prompt and of each response."""


@dataclass(frozen=True, kw_only=True)
class MiniBatch:
    """Input of the update of one optimiser step: the responses of all ranks and micro-batches.

    It is the same on every rank. The responses of a prompt are consecutive rows. Log-probs and entropies
    are in nats.
    """

    mask: Tensor
    """(B, T) bool, true on response tokens; responses start at position 0."""
    advantages: Tensor
    """(B,) advantage of each response."""
    old_logps: Tensor
    """(B, T) log-probs of the policy that produced the responses."""
    old_entropies: Tensor
    """(B, T) entropies of the policy that produced the responses."""
    rollout_logps: Tensor | None = None
    """(B, T) the same log-probs as the engine of the rollout computed them, NaN where it did not, or None."""
    ref_logps: Tensor | None = None
    """(B, T) log-probs of the reference model; required for a KL term."""
    proxy_logps: Tensor | None = None
    """(B, T) log-probs of the proxy of the behaviour policy, -inf where it has none, for a penalty."""
    group_advantages: Tensor | None = None
    """(B,) advantages of the usual estimator if `advantages` are of another one, to measure how much that
    changes (`touched_weight`)."""
    prompt_lengths: Tensor | None = None
    """(B,) tokens of each prompt, which count towards the size of a micro-batch; None counts as 0."""
    response_lengths: Tensor | None = None
    """(B,) tokens of each response, if the mask may not have all of them."""

    def take(self, rows: Tensor) -> Self:
        """Return the mini-batch of some rows, with tensors (R, T) and (R,)."""
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{k: v[rows] for k, v in tables.items() if v is not None})

    def lengths(self) -> Lengths:
        """Return the tokens of each prompt and of each response."""
        responses = self.mask.sum(dim=1)
        prompts = self.prompt_lengths
        return torch.zeros_like(responses) if prompts is None else prompts, responses


def micro_batches(
    lengths: Lengths,
    rows: Tensor,
    token_budget: int,
    layout: Layout = "padded",
    group_size: int = 1,
) -> list[Tensor]:
    """Return micro-batches of the sequences `rows` (R,), of similar length, the longest sequences first.

    The budget limits the positions that are computed: the tokens alone if packed, otherwise rows x (longest
    prompt + longest response); a longer sequence is alone. With shared prompts, the rows of each `group_size`
    are together.
    """
    if layout == "shared":
        return _group_batches(lengths, rows, token_budget, group_size)
    packed, (prompts, responses) = layout == "packed", lengths
    order = torch.argsort((prompts + responses)[rows], descending=True, stable=True)
    parts: list[list[int]] = []
    longest_prompt = longest_response = tokens = 0
    for row in rows[order].tolist():
        row_prompt, row_response = int(prompts[row]), int(responses[row])
        prompt, response = max(longest_prompt, row_prompt), max(longest_response, row_response)
        tokens += row_prompt + row_response
        positions = tokens if packed or not parts else (len(parts[-1]) + 1) * (prompt + response)
        if parts and positions <= token_budget:
            parts[-1].append(row)
        else:
            parts.append([row])
            prompt, response, tokens = row_prompt, row_response, row_prompt + row_response
        longest_prompt, longest_response = prompt, response
    return [torch.tensor(micro_batch, device=rows.device) for micro_batch in parts]


def _group_batches(
    lengths: Lengths, rows: Tensor, token_budget: int, group_size: int
) -> list[Tensor]:
    """Return micro-batches in which the responses to a prompt share it; a group that is too long is divided.

    The positions are those of each prompt and, for each of its responses, as many as the longest one has.
    """
    groups: dict[int, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(row // group_size, []).append(row)
    prompts, responses = (table.tolist() for table in lengths)
    parts: list[list[int]] = []
    positions = 0  # Of all groups of the last micro-batch.
    for group in groups.values():
        kept = 0  # Rows of this group in the last micro-batch.
        before, longest = positions, 0
        for row in sorted(group, key=responses.__getitem__, reverse=True):
            longest = max(longest, responses[row])
            positions = before + prompts[row] + (kept + 1) * longest
            if not parts or positions > token_budget:
                parts.append([])
                kept, before, longest = 0, 0, responses[row]
                positions = prompts[row] + longest
            parts[-1].append(row)
            kept += 1
    return [torch.tensor(micro_batch, device=rows.device) for micro_batch in parts]


def micro_batches_by_rank(
    lengths: Lengths,
    rows: Tensor,
    token_budget: int,
    num_ranks: int,
    layout: Layout = "padded",
    group_size: int = 1,
) -> list[list[Tensor]]:
    """Return the micro-batches of each rank: the same number for each, with about the same work.

    Every rank computes the whole result from the same lengths, so the ranks need not communicate. A rank
    with fewer micro-batches gets empty ones at the end: all ranks gather sharded parameters together, so
    all of them must run the same number of passes.
    """
    order = torch.argsort((lengths[0] + lengths[1])[rows], descending=True, stable=True)
    by_rank = [
        micro_batches(lengths, rows[order[rank::num_ranks]], token_budget, layout, group_size)
        for rank in range(num_ranks)
    ]
    most = max(len(parts) for parts in by_rank)
    return [parts + [rows[:0]] * (most - len(parts)) for parts in by_rank]
