"""Additive penalties of tokens, with gradient: a coefficient of each token, times a quantity of the policy.

The coefficient is computed over the whole mini-batch without gradient, the quantity in each micro-batch.
Both are subtracted from the surrogate, and have its divisor. B sequences, T response positions; in nats.

All functions of coefficients take `logps` and `entropies` (B, T) of the policy that selects tokens,
`advantages` (B,) and `mask` (B, T) bool, and return (B, T) coefficients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stapo.core.objective.resolution import at_resolution
from stapo.core.objective.selection import chosen, covariances, quantiles
from stapo.core.objective.shapes import check_shapes
from stapo.core.objective.surrogates import kl_k3

State = Mapping[str, float]
"""What a penalty remembers from step to step; it lies in the step checkpoint."""
Quantity = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of (B, T) log-probs and entropies, both with gradient, and the log-probs of another policy."""


@dataclass(frozen=True)
class Penalty:
    """A penalty."""

    coefficients: Callable[..., Tensor]
    quantity: Quantity
    against_proxy: bool = False
    """Whether the other policy is the proxy (see `lp_reg_coefficients`), which the coefficients get as
    `proxy`, or that of the rollout."""
    acts_on_entropy: bool = False
    """Whether its gradient is that of the entropy, not of the sampled token's log-prob."""
    initial: State = field(default_factory=dict)
    following: Callable[..., State] = lambda state, entropy, **_: state
    """Returns the state after a step, from that before it and the mean entropy of its mini-batch."""


def kl_cov_coefficients(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    covariant_share: float = 2e-3,
    penalty_coefficient: float = 1.0,
) -> Tensor:
    """Return a coefficient for the share of tokens with the highest covariances, at least one token.

    Of equal ones, the first tokens of the mini-batch count.

    Source: KL-Cov (arXiv 2505.22617), with the share and coefficient of its 7B models.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies)
    count = max(1, int(covariant_share * int(mask.sum())))
    order = covariances(logps, advantages, mask)[mask].sort(descending=True, stable=True).indices
    coefficients: Tensor = penalty_coefficient * chosen(mask, order[:count]).to(logps.dtype)
    return coefficients


def absolute_log_ratio(logps: Tensor, entropies: Tensor, other: Tensor) -> Tensor:
    """Return |log ratio|, whose gradient at a ratio of 1 is 0.

    With a ratio of 1 up to rounding, it is a push of full size in a random direction.
    """
    return (logps - other).abs()


def lp_reg_coefficients(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    proxy: Tensor,
    unlikely_share: float = 0.01,
    penalty_coefficient: float = 1.0,
    min_p: float = 0.02,
) -> Tensor:
    """Return a coefficient for tokens with A < 0 that are unlikely, but that the proxy makes more likely.

    The proxy is the behaviour policy over the tokens whose probability is at least min_p that of the most
    likely one; `proxy` (B, T) has its log-probabilities, -inf for others. Unlikely are tokens below the
    quantile of the log-probabilities of all tokens, strict.

    Source: Lp-Reg (arXiv 2510.03222 v1); the quantile of the mini-batch (its code: micro-batch) is ours.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, proxy=proxy, advantages=advantages)
    negative = mask & (advantages < 0).unsqueeze(1)
    if not mask.any():
        return torch.zeros_like(logps)
    rounded = at_resolution(logps)
    (threshold,) = quantiles(rounded[mask], [unlikely_share])
    held = negative & (rounded < threshold) & (logps < proxy)
    coefficients: Tensor = penalty_coefficient * held.to(logps.dtype)
    return coefficients


def divergence(logps: Tensor, entropies: Tensor, other: Tensor) -> Tensor:
    """Return the k3 estimate of KL(policy || other), 0 for tokens that the other policy does not have."""
    known = other.isfinite()
    return torch.where(known, kl_k3(logps, torch.where(known, other, logps.detach())), 0.0)


def uniform_coefficients(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    entropy_coefficient: float = 1e-3,
) -> Tensor:
    """Return the same coefficient for every token.

    Source: entropy bonus, such as arXiv 2505.22617, section 4.1.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return entropy_coefficient * mask.to(logps.dtype)


def coefficients_below_target(
    logps: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    coefficient: float = 0.0,
    entropy_target: float = 0.2,
    entropy_step: float = 1e-4,
    entropy_limit: float = 5e-3,
) -> Tensor:
    """Return the remembered coefficient for every token while the mean entropy is below the target, or 0.

    Source: Skywork-OR1 (arXiv 2505.22312), adaptive entropy control.
    """
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    low = bool(mask.any()) and float(entropies[mask].double().mean()) <= entropy_target
    return (coefficient if low else 0.0) * mask.to(logps.dtype)


def adapted(
    state: State,
    entropy: float,
    entropy_target: float = 0.2,
    entropy_step: float = 1e-4,
    entropy_limit: float = 5e-3,
) -> State:
    """Return the coefficient one step higher below the target, one lower above it, within its limits."""
    step = entropy_step if entropy < entropy_target else -entropy_step
    return {"coefficient": min(max(state["coefficient"] + step, 0.0), entropy_limit)}


def negative_entropy(logps: Tensor, entropies: Tensor, other: Tensor) -> Tensor:
    """Return -H: subtracted, it is a bonus."""
    return -entropies


def _nothing(logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    check_shapes(mask=mask, logps=logps, entropies=entropies, advantages=advantages)
    return torch.zeros_like(logps)


PENALTIES: dict[str, Penalty] = {
    "none": Penalty(_nothing, lambda logps, *_: torch.zeros_like(logps)),
    "kl_cov": Penalty(kl_cov_coefficients, absolute_log_ratio),
    "lp_reg": Penalty(lp_reg_coefficients, divergence, against_proxy=True),
    "entropy_bonus": Penalty(uniform_coefficients, negative_entropy, acts_on_entropy=True),
    "adaptive_entropy_bonus": Penalty(
        coefficients_below_target,
        negative_entropy,
        acts_on_entropy=True,
        initial={"coefficient": 0.0},
        following=adapted,
    ),
}
"""Name to penalty."""
