"""What must hold exactly between methods, at the edges of each inequality, and under padding and order."""

import math

import pytest
import torch
from torch import Tensor

from stapo.core.objective import (
    SELECTIONS,
    group_advantages,
    keep_high_entropy,
    spurious_candidates,
    token_mean,
)
from stapo.core.objective.selection import quantiles

EVERY_SELECTION = pytest.mark.parametrize("name", sorted(SELECTIONS))


@pytest.fixture
def tables() -> tuple[Tensor, ...]:
    """Log-probs, entropies, advantages and mask; a fifth of the tokens is rare, and padding holds garbage."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(3, 16, 24, generator=generator, dtype=torch.float64)
    logps = torch.where(draws[0] < 0.2, -6.5 - 7.5 * draws[1], -0.01 - 4 * draws[1])
    lengths = torch.randint(1, 25, (16, 1), generator=generator)
    advantages = torch.linspace(-2.5, 2.5, 16, dtype=torch.float64)
    return logps, 3 * draws[2], advantages, torch.arange(24) < lengths


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("reward", [0.0, 1.0, -1.0, 0.1, 1 / 3, 1e6 + 0.1, 1e-8])
@pytest.mark.parametrize("group_size", [2, 3, 7, 8, 16])
def test_equal_rewards_have_no_advantage(dtype, reward: float, group_size: int) -> None:
    # 0.1 summed and divided is not 0.1: the rounding must not be divided by eps.
    others = torch.arange(group_size, dtype=dtype)
    rewards = torch.cat([torch.full((group_size,), reward, dtype=dtype), others])
    advantages = group_advantages(rewards, group_size)
    assert (advantages[:group_size] == 0).all()
    assert (advantages[group_size:] != 0).sum() >= group_size - 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_in_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """A weight of 1 / 393,216 is not exact in half precision; only the mean itself may be rounded."""
    keep = torch.ones(4, 3 * 2**15, dtype=torch.bool)
    values = torch.full(keep.shape, 0.75, dtype=dtype)
    found = token_mean(values, keep)
    assert (found.item(), found.dtype) == (0.75, dtype)


def test_the_probability_is_compared_strictly_and_not_its_logarithm() -> None:
    logps, mask = torch.tensor([[-6.25]]).double(), torch.ones(1, 1, dtype=torch.bool)
    tau_p = torch.exp(logps).item()
    for limit, rare in ((tau_p, False), (math.nextafter(tau_p, 1.0), True)):
        assert spurious_candidates(logps, torch.ones(1), mask, limit).item() is rare


def test_20_entropy_rounds_up_no_rounding_error() -> None:
    # 0.55 * 655380 is 360459.00000000006 in floating point; a mini-batch of the paper has millions of tokens.
    mask = torch.ones(1, 655_380, dtype=torch.bool)
    zeros = torch.zeros(1, 655_380)
    assert keep_high_entropy(zeros, zeros, zeros[:, 0], mask, fraction=0.55).sum() == 360_459
    few = zeros[:, :11]
    assert keep_high_entropy(few, few, few[:, 0], mask[:, :11], fraction=0.2).sum() == 3


def test_20_entropy_keeps_as_many_equal_tokens_of_every_response() -> None:
    mask = torch.ones(40, 50, dtype=torch.bool)  # long enough for an unstable sort to shuffle
    equal = torch.ones(40, 50, dtype=torch.float64)
    keep = keep_high_entropy(equal, equal, equal[:, 0], mask, fraction=0.2)
    assert torch.equal(keep, (torch.arange(50) < 10).expand(40, 50))


@pytest.mark.parametrize("garbage", [0.0, -1.0, -1e4, 1e4])
@EVERY_SELECTION
def test_padding_does_not_change_the_selection(tables, garbage, name) -> None:
    """Two positions before, three behind and one empty sequence, full of garbage."""

    def padded(value: Tensor) -> Tensor:
        fill = False if value.dtype == torch.bool else garbage
        columns = (2, 3, 0, 1) if value.dim() == 2 else (0, 1)
        return torch.nn.functional.pad(value, columns, value=fill)

    keep = SELECTIONS[name](*map(padded, tables))
    assert not (keep & ~padded(tables[3])).any()
    assert torch.equal(keep[:-1, 2:-3], SELECTIONS[name](*tables))


@EVERY_SELECTION
def test_selections_have_no_gradient_and_no_side_effect(tables, name) -> None:
    before = [value.clone() for value in tables]
    logps, entropies = (value.requires_grad_() for value in tables[:2])
    keep = SELECTIONS[name](logps, entropies, *tables[2:])
    assert not keep.requires_grad
    keep &= False  # It is not the mask itself.
    assert all(torch.equal(one, other) for one, other in zip(tables, before, strict=True))


def test_a_level_that_is_not_exact_does_not_move_a_quantile_below_its_value():
    assert quantiles(torch.arange(11.0), [1 - 0.8, 0.55]).tolist() == [2.0, 5.5]
    assert quantiles(torch.arange(101.0), [0.55]).tolist() == [55.0]
