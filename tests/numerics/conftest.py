"""Mini-batches for the numerical tests."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything here is numbers that a CPU computes."""
    item.add_marker(pytest.mark.rounding)


@dataclass
class Batch:
    """A mini-batch as tensors; `lists` gives the oracle's view of it."""

    logps: Tensor
    old_logps: Tensor
    ref_logps: Tensor
    entropies: Tensor
    advantages: Tensor
    mask: Tensor

    def lists(self, *names: str) -> list:
        return [getattr(self, name).tolist() for name in names]

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(**{name: change(value) for name, value in vars(self).items()})


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., Batch]:
    """Return a factory of random mini-batches.

    The last group of 4 has advantage 0; about a fifth of the tokens have a probability below 0.002;
    importance ratios fall on both sides of both clips; lengths vary; padding holds garbage.
    """

    def make(
        seed: int, num_groups: int = 4, length: int = 24, dtype: torch.dtype = torch.float64
    ) -> Batch:
        generator = torch.Generator().manual_seed(seed)

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(*shape, generator=generator, dtype=dtype)

        size = 4 * num_groups
        shape = (size, length)
        is_rare = uniform(0, 1, *shape) < 0.2
        logps = torch.where(is_rare, uniform(-14, -6.5, *shape), uniform(-4, -0.01, *shape))
        advantages = uniform(-2.5, 2.5, size)
        advantages[-4:] = 0.0
        lengths = torch.randint(1, length + 1, (size,), generator=generator)
        mask = torch.arange(length) < lengths[:, None]
        return Batch(
            logps=torch.where(mask, logps, uniform(-20, 0, *shape)),
            old_logps=torch.where(mask, logps + uniform(-0.6, 0.6, *shape), 0.0),
            ref_logps=torch.where(mask, logps + uniform(-1, 1, *shape), 0.0),
            entropies=uniform(0, 3, *shape),
            advantages=advantages,
            mask=mask,
        )

    return make
