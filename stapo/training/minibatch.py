"""A mini-batch, and how it is dealt to ranks and cut into micro-batches.

B sequences, T response positions. How it is dealt and cut changes no result: thresholds and divisors are
those of the whole mini-batch; ranks and micro-batches only decide what is computed where and together.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class MiniBatch:
    """What an update is given of one optimiser step: the responses of all ranks and micro-batches.

    The same on every rank; the responses of a prompt are consecutive rows. Log-probs and entropies in nats.
    """

    mask: Tensor
    """(B, T) bool, true on response tokens; responses start at position 0."""
    advantages: Tensor
    """(B,)."""
    old_logps: Tensor
    """(B, T), of the policy that produced the responses."""
    old_entropies: Tensor
    """(B, T), of the policy that produced the responses."""
    ref_logps: Tensor | None = None
    """(B, T), of the reference; a KL term needs it."""
    prompt_lengths: Tensor | None = None
    """(B,) tokens; they count towards the size of a micro-batch. None: as if there were none."""

    def take(self, rows: Tensor) -> Self:
        """Return some rows, (R, T) and (R,)."""
        tables = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{k: v[rows] for k, v in tables.items() if v is not None})

    def lengths(self) -> tuple[Tensor, Tensor]:
        """Return the (B,) tokens of each prompt and of each response."""
        responses = self.mask.sum(dim=1)
        prompts = (
            torch.zeros_like(responses) if self.prompt_lengths is None else self.prompt_lengths
        )
        return prompts, responses


def cut(
    prompt_lengths: Tensor, response_lengths: Tensor, rows: Tensor, token_budget: int
) -> list[Tensor]:
    """Return micro-batches of similar length, the longest first.

    Args:
        prompt_lengths: (B,) tokens of each prompt.
        response_lengths: (B,) tokens of each response.
        rows: (R,) indices of the sequences to cut.
        token_budget: upper limit of rows x (longest prompt + longest response); a single sequence
            that is longer gets a micro-batch of its own.

    Returns:
        Index tensors that together hold each of `rows` once.
    """
    order = torch.argsort((prompt_lengths + response_lengths)[rows], descending=True, stable=True)
    micro_batches: list[list[int]] = []
    longest_prompt = longest_response = 0
    for row in rows[order].tolist():
        prompt = max(longest_prompt, int(prompt_lengths[row]))
        response = max(longest_response, int(response_lengths[row]))
        if micro_batches and (len(micro_batches[-1]) + 1) * (prompt + response) <= token_budget:
            micro_batches[-1].append(row)
        else:
            micro_batches.append([row])
            prompt, response = int(prompt_lengths[row]), int(response_lengths[row])
        longest_prompt, longest_response = prompt, response
    return [torch.tensor(micro_batch, device=rows.device) for micro_batch in micro_batches]


def deal(
    prompt_lengths: Tensor,
    response_lengths: Tensor,
    rows: Tensor,
    token_budget: int,
    num_ranks: int,
) -> list[list[Tensor]]:
    """Return the micro-batches of every rank: as many on each, of about the same work.

    Every rank computes the whole plan from lengths that all know, so nothing needs to be agreed on.
    A rank that has fewer gets empty ones at its end: sharded parameters are gathered by all ranks
    together, so a rank with nothing left to do must go through as many passes as the others.

    Args:
        prompt_lengths: (B,) tokens of each prompt.
        response_lengths: (B,) tokens of each response.
        rows: (R,) indices of the sequences to compute.
        token_budget: as in `cut`.
        num_ranks: among how many to deal.
    """
    order = torch.argsort((prompt_lengths + response_lengths)[rows], descending=True, stable=True)
    hands = [rows[order[rank::num_ranks]] for rank in range(num_ranks)]
    parts = [cut(prompt_lengths, response_lengths, hand, token_budget) for hand in hands]
    most = max(len(part) for part in parts)
    return [part + [rows[:0]] * (most - len(part)) for part in parts]
