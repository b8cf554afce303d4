"""Numbers printed in the paper and its theorem on gradient norms."""

import pytest
import torch
from torch import Tensor

from stapo.core.objective import gradient_norm_bounds, group_advantages, logit_gradient_norm_sq

# The advantages printed in the paper's case tables, by the number of right responses out of 8.
PRINTED = {7: "0.35", 6: "0.54", 5: "0.72", 4: "0.94", 3: "1.21", 2: "1.62", 1: "2.47"}


@pytest.mark.parametrize("wrong", [-1.0, 0.0], ids=["+1/-1", "1/0"])
@pytest.mark.parametrize("num_right", sorted(PRINTED))
def test_printed_advantages(num_right: int, wrong: float) -> None:
    rewards = torch.tensor([1.0] * num_right + [wrong] * (8 - num_right), dtype=torch.float64)
    advantages = group_advantages(rewards, 8)
    assert {f"{a:.2f}" for a in advantages[:num_right].tolist()} == {PRINTED[num_right]}


def distributions(vocab_size: int, scale: float) -> tuple[Tensor, ...]:
    """Random logits (4, 10, V), sampled tokens and weights, and what follows from them."""
    generator = torch.Generator().manual_seed(vocab_size)
    logits = scale * torch.randn(4, 10, vocab_size, generator=generator, dtype=torch.float64)
    tokens = torch.randint(vocab_size, (4, 10, 1), generator=generator)
    weights = 2 * torch.randn(4, 10, generator=generator, dtype=torch.float64)
    log_probs = torch.log_softmax(logits, dim=-1)
    entropies = -(log_probs.exp() * log_probs).sum(dim=-1)
    return logits, tokens, weights, log_probs.gather(2, tokens)[..., 0], entropies


# Scales from nearly uniform to nearly deterministic.
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("vocab_size", [2, 3, 57, 1000])
def test_gradient_norm_is_that_of_autograd_and_within_the_bounds(vocab_size: int, scale: float):
    logits, tokens, weights, logps, entropies = distributions(vocab_size, scale)
    logits.requires_grad_()
    objective = weights * torch.log_softmax(logits, dim=-1).gather(2, tokens)[..., 0]
    (gradient,) = torch.autograd.grad(objective.sum(), logits)
    expected = gradient.square().sum(dim=-1)
    collision = torch.softmax(logits.detach(), dim=-1).square().sum(dim=-1)
    norms = logit_gradient_norm_sq(weights, logps, collision)
    # As p -> 1, the part of the other tokens cancels to 0, at most as much as that of the token: an error of
    # some 1e-16 of w^2 (up to 50). That of the token alone bounds the norm from below.
    torch.testing.assert_close(norms, expected, rtol=1e-12, atol=1e-13)
    assert (norms >= (1 - 1e-15) * weights.square() * torch.expm1(logps).square()).all()
    lower, upper = gradient_norm_bounds(weights, logps, entropies, vocab_size)
    # The bounds touch the norm at the uniform and at one-hot.
    rounding = 1e-14 * (1 + weights.square())
    assert (lower <= norms + rounding).all()
    assert (norms <= upper + rounding).all()
    if scale == 1.0 and vocab_size > 2:  # neither of them: the bounds are not the norm itself
        assert (lower < norms).all()
        assert (norms < upper).all()


@pytest.mark.parametrize("vocab_size", [2, 9])
def test_both_bounds_are_the_norm_of_a_uniform_distribution(vocab_size: int) -> None:
    weights, entropies = torch.tensor([[3.0]]).double(), torch.tensor([[vocab_size]]).double().log()
    for bound in gradient_norm_bounds(weights, -entropies, entropies, vocab_size):
        assert bound.item() == pytest.approx(9 * (1 - 1 / vocab_size))
