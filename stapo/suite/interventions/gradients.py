"""Gradients of single tokens at all weights, beside those at the logits: a backward pass for each.

The paper's bounds are about the logits of a token; how large its gradient is at the weights also depends on
the network below them. B sequences, T response positions, V logits.
"""

from math import hypot
from random import Random

import torch
from torch import Tensor

from stapo.core.methods import Args
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import at_resolution
from stapo.core.objective.diagnostics import logit_gradient_norm_sq
from stapo.core.trainer import StapoTrainer, mini_batch, sequences_of
from stapo.suite.interventions.updates import Rollout
from stapo.suite.records.interventions import Quadrant, TokenGradient
from stapo.suite.training.token_recorder import token_kinds


def quadrants_of(batch: MiniBatch, s2t: Args) -> dict[Quadrant, Tensor]:
    """Return the (B, T) bool masks of the quadrants; empty without a candidate, which gives the threshold."""
    given = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    kinds, threshold = token_kinds(s2t, *given)
    if threshold is None:
        return {}
    sure = at_resolution(batch.old_entropies) < threshold
    likely = kinds["other"] & (batch.advantages > 0).unsqueeze(1)
    return {
        "rare, sure": kinds["silenced"],
        "rare, unsure": kinds["retained"],
        "likely, sure": likely & sure,
        "likely, unsure": likely & ~sure,
    }


def token_gradients(
    trainer: StapoTrainer, rollout: Rollout, s2t: Args, size: int, seed: str
) -> tuple[TokenGradient, ...]:
    """Return the gradients of a sample of `size` tokens of each quadrant, or all, at the current weights."""
    batch, sequences = mini_batch(rollout), sequences_of(rollout)
    prompts, _ = batch.lengths()
    gradients = []
    for quadrant, mask in quadrants_of(batch, s2t).items():
        places = mask.nonzero().tolist()
        sampled = sorted(Random(f"{seed} {quadrant}").sample(places, min(size, len(places))))
        for row, position in sampled:
            ids = sequences.ids[row][sequences.mask[row].bool()]
            norms = _norms(trainer, ids[: int(prompts[row]) + position + 1])
            weight = len(places) / len(sampled)
            gradients.append(TokenGradient(quadrant=quadrant, weight=weight, **norms))
    trainer.model.zero_grad()
    return tuple(gradients)


def _norms(trainer: StapoTrainer, ids: Tensor) -> dict[str, float]:
    """Return the log-prob of the last of (length,) ids, and its gradient's norms at logits and weights."""
    model = trainer.model
    model.zero_grad()
    logits = model(input_ids=ids[None, :-1], logits_to_keep=1).logits[:, -1]
    log_probs = (logits.double() / trainer.args.temperature).log_softmax(dim=1)
    logp = log_probs[:, ids[-1:]]
    logp.sum().backward()
    collision = (2 * log_probs.detach()).exp().sum(dim=1, keepdim=True)
    at_logits = logit_gradient_norm_sq(torch.ones_like(logp), logp.detach(), collision).sqrt()
    # A tied matrix is there once, with the sum of both of its gradients.
    norms = [
        float(torch.linalg.vector_norm(p.grad, dtype=torch.float64))
        for p in model.parameters()
        if p.grad is not None
    ]
    return {"logp": logp.item(), "at_logits": at_logits.item(), "at_weights": hypot(*norms)}
