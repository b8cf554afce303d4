"""The loss of one micro-batch: its share of the whole mini-batch's, and what is counted on the way."""

from collections.abc import Mapping

import torch
from torch import Tensor

from stapo.methods import Method
from stapo.objective import clipped_surrogate, kl_k3

NUM_SUMS = 4
"""Loss, KL, tokens clipped low, tokens clipped high."""


def micro_batch_loss(
    logps: Tensor, batch: Mapping[str, Tensor], weights: Tensor, method: Method
) -> tuple[Tensor, Tensor]:
    """Return the loss of some sequences, to be summed over all micro-batches and ranks.

    Args:
        logps: (R, W) current log-probs in nats, with gradient.
        batch: of the same sequences: `completion_mask`, `old_per_token_logps` and, with a KL term,
            `ref_per_token_logps`, (R, W) or wider; `advantages` (R,).
        weights: (R, W) or wider, `minibatch.token_weights` of the whole mini-batch.
        method: clip, KL coefficient.

    Returns:
        The loss, and (NUM_SUMS,) sums in double precision without gradient.
    """
    width = logps.shape[1]
    mask = batch["completion_mask"][:, :width].bool()
    old_logps, advantages = batch["old_per_token_logps"][:, :width], batch["advantages"]
    values = clipped_surrogate(
        logps, old_logps, advantages, method.clip_low, method.clip_high, method.dual_clip
    )
    kl = torch.zeros_like(values)
    if method.kl_coefficient > 0:
        kl = kl_k3(logps, batch["ref_per_token_logps"][:, :width])
        values = values - method.kl_coefficient * kl
    # A position beyond a response may hold anything: out before it meets a weight of 0.
    loss = -(values.masked_fill(~mask, 0.0) * weights[:, :width]).sum()
    ratio, sign = torch.exp(logps.detach() - old_logps), advantages.unsqueeze(1)
    sums = [
        loss.detach(),
        kl.detach().masked_fill(~mask, 0.0).sum(),
        (mask & (sign < 0) & (ratio < 1 - method.clip_low)).sum(),
        (mask & (sign > 0) & (ratio > 1 + method.clip_high)).sum(),
    ]
    return loss, torch.stack([value.double() for value in sums])
