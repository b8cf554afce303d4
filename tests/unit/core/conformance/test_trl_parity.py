"""The same loss and gradient as TRL where it has the method, with its conventions named."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="TRL's losses are compared here")

from stapo.core.conformance.trainers import RankAccelerator, _inputs, _shell
from stapo.core.methods import METHODS, Method
from stapo.core.minibatch import MiniBatch
from stapo.core.ranks import AcceleratorRanks
from stapo.core.update import accumulate_gradient

BONUS = {"use_adaptive_entropy": False, "_entropy_bonus_enabled": True, "entropy_coef": 0.02}
CASES: dict[str, tuple[Method, dict[str, Any]]] = {
    # TRL's epsilon_high is the cap of the ratio itself.
    "cispo": (
        replace(METHODS["cispo"], args={"ratio_cap": 1.2}),
        {"loss_type": "cispo", "epsilon_high": 1.2},
    ),
    "gspo": (
        METHODS["gspo"],
        {"importance_sampling_level": "sequence", "loss_type": "grpo"}
        | {"epsilon_low": 3e-4, "epsilon_high": 4e-4},
    ),
    "sapo": (METHODS["sapo"], {"loss_type": "sapo"}),
    "dr-grpo": (METHODS["dr-grpo"], {"loss_type": "dr_grpo", "max_completion_length": 9}),
    # TRL averages the bonus over all tokens, like the loss of this base.
    "entropy-bonus": (
        replace(METHODS["entropy-bonus"], args={"entropy_coefficient": 0.02}),
        {"loss_type": "bnpo", "epsilon_high": 0.28, **BONUS},
    ),
}  # fmt: skip


def mini_batch() -> tuple[MiniBatch, torch.Tensor]:
    """Return eight responses in two groups, in double precision, and their current log-probs."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 5, 6, 3, 7, 1, 4, 2])
    old = -3 * torch.rand(8, 7, generator=generator, dtype=torch.double) - 0.1
    logps = old + 0.4 * torch.randn(8, 7, generator=generator, dtype=torch.double)
    batch = MiniBatch(
        mask=torch.arange(7) < lengths.unsqueeze(1),
        advantages=torch.randn(8, generator=generator, dtype=torch.double),
        old_logps=old,
        old_entropies=torch.rand(8, 7, generator=generator, dtype=torch.double),
        ref_logps=old,
    )
    return batch, logps.clamp(max=-0.01)


def of_trl(batch: MiniBatch, logps: torch.Tensor, given: dict[str, Any]) -> tuple[float, Any]:
    """Return the loss of TRL, and its gradient by log-probs and entropies."""
    trainer = copy.copy(_shell())
    trainer.accelerator, trainer.args = RankAccelerator.alone(), copy.copy(trainer.args)
    trainer.current_gradient_accumulation_steps = 1
    for name, value in given.items():
        setattr(trainer, name, value)
    leaf = torch.stack([logps, batch.old_entropies]).requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (*leaf, None)
    loss = trainer._compute_loss(trainer.model, _inputs(batch))
    loss.backward()
    return loss.item(), leaf.grad


def of_ours(batch: MiniBatch, logps: torch.Tensor, method: Method) -> tuple[float, Any]:
    leaf = torch.stack([logps, batch.old_entropies]).requires_grad_()
    loss, _ = accumulate_gradient(
        lambda rows: leaf[:, rows].unbind(), batch, method, AcceleratorRanks(RankAccelerator.alone()),
        group_size=4, micro_batch_tokens=10_000, max_response_tokens=9,
    )  # fmt: skip
    return loss.item(), leaf.grad


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(name: str) -> None:
    batch, logps = mini_batch()
    method, given = CASES[name]
    loss, gradient = of_trl(batch, logps, given)
    own_loss, own_gradient = of_ours(batch, logps, method)
    # Weights are single precision on our side.
    torch.testing.assert_close(own_gradient, gradient, rtol=1e-6, atol=1e-7)
    assert own_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
