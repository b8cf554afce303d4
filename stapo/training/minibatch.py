"""How a mini-batch is dealt to ranks and cut into micro-batches, and what each token weighs in the loss.

B sequences, T response positions. Nothing here changes a result: thresholds and divisors are those of
the whole mini-batch; ranks and micro-batches only decide what is computed where and together.
"""

import torch
from torch import Tensor

from stapo.methods import AggregationName


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


def token_weights(keep: Tensor, aggregation: AggregationName, group_size: int) -> Tensor:
    """Return (B, T) weights with which a sum over tokens is the aggregation of the whole mini-batch.

    The sum of weights x values equals the function of that name in `objective`, and can be taken
    micro-batch by micro-batch.

    Args:
        keep: (B, T) bool, the tokens that contribute.
        aggregation: whose divisor.
        group_size: responses per prompt, consecutive rows.
    """
    rows = {"token_mean": len(keep), "group_token_mean": group_size, "sequence_mean": 1}[
        aggregation
    ]
    counts = keep.sum(dim=1).view(-1, rows).sum(dim=1)
    weights = 1 / counts.clamp(min=1) / (counts > 0).sum().clamp(min=1)
    return keep * weights.repeat_interleave(rows).unsqueeze(1)
