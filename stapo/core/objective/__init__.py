"""The policy objective of STAPO and its baselines, as pure functions of tensors; only torch is imported.

B sequences of an optimiser mini-batch (all ranks and micro-batches together), T response positions; `mask`
(B, T) is true on response tokens; log-probabilities and entropies (B, T) in nats; `advantages` (B,).
"""

from stapo.core.objective.advantages import group_advantages
from stapo.core.objective.aggregation import token_mean, token_weights
from stapo.core.objective.diagnostics import gradient_norm_bounds, logit_gradient_norm_sq
from stapo.core.objective.resolution import ENTROPY_RESOLUTION, at_resolution
from stapo.core.objective.selection import (
    SELECTIONS,
    keep_all,
    keep_high_entropy,
    silence_candidates,
    silence_high_entropy,
    silence_random,
    silence_spurious,
    spurious_candidates,
    spurious_threshold,
)
from stapo.core.objective.surrogates import clipped_surrogate, kl_k3

__all__ = [
    "ENTROPY_RESOLUTION",
    "SELECTIONS",
    "at_resolution",
    "clipped_surrogate",
    "gradient_norm_bounds",
    "group_advantages",
    "keep_all",
    "keep_high_entropy",
    "kl_k3",
    "logit_gradient_norm_sq",
    "silence_candidates",
    "silence_high_entropy",
    "silence_random",
    "silence_spurious",
    "spurious_candidates",
    "spurious_threshold",
    "token_mean",
    "token_weights",
]
