"""STAPO's update in a plain PyTorch loop; torch is the only dependency.

The selection needs the whole mini-batch, the gradient only a micro-batch at a time: select first, then divide
every micro-batch's sum by the number of tokens that the whole mini-batch keeps.

    logps, entropies = without gradient, after the rollout, for all rows: log_probs(model, ...)
    for rows in mini-batches:
        optimizer.zero_grad()
        accumulate(lambda part: log_probs(model, ids[part], attention[part], width)[0], ...)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

On several ranks, gather log-probs, entropies, advantages and mask of the mini-batch on all of them first,
give each rank its own micro-batches, and multiply the loss by the number of ranks if gradients are averaged.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from stapo.core.objective import at_resolution, clipped_surrogate, silence_spurious


def log_probs(model: Any, ids: Tensor, attention: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies, (B, T) each, of the last T = `width` tokens of sequences.

    Args:
        model: causal language model of Transformers.
        ids: (B, P + T) token ids, prompts padded on the left, responses on the right.
        attention: (B, P + T) 1 on prompt and response tokens.
        width: T.
    """
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1].float()
    logps = logits.log_softmax(dim=-1)
    entropies = -(logps.exp() * logps).sum(dim=-1)
    return logps.gather(2, ids[:, -width:].unsqueeze(2)).squeeze(2), entropies.detach()


def accumulate(
    forward: Callable[[Tensor], Tensor],
    old_logps: Tensor,
    old_entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    micro_batches: Iterable[Tensor],
    **selection: Any,
) -> float:
    """Accumulate the gradient of STAPO's loss of a whole mini-batch; return the loss.

    Args:
        forward: rows -> log-probs of the current policy at their response tokens, (R, T), with gradient.
        old_logps: (B, T) log-probs of the policy that produced the responses.
        old_entropies: (B, T) entropies of that policy.
        advantages: (B,) advantages, from `stapo.core.objective.group_advantages`.
        mask: (B, T) bool, true on response tokens.
        micro_batches: (R,) rows each, which together contain every row once.
        **selection: `tau_p`, `quantile`, `scope`; the paper's by default.
    """
    keep = silence_spurious(old_logps, at_resolution(old_entropies), advantages, mask, **selection)
    divisor, total = keep.sum().clamp(min=1), 0.0
    for rows in micro_batches:
        values = clipped_surrogate(forward(rows), old_logps[rows], advantages[rows], 0.2, 0.28)
        loss = -values.masked_fill(~keep[rows], 0.0).sum() / divisor
        torch.autograd.backward(loss)
        total += loss.item()
    return total
