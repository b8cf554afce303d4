"""The methods as data, run through the trainer's own loss, against the paper's numbers in the loops."""

from collections.abc import Callable
from typing import Any

import oracle
import pytest
import torch

pytest.importorskip("accelerate", reason="the update of our trainer needs it")

from stapo.methods import METHODS
from stapo.objective import SELECTIONS
from stapo.objective.aggregation import token_weights
from stapo.training.minibatch import MiniBatch
from stapo.training.update import micro_batch_loss

SEEDS = pytest.mark.parametrize("seed", range(3))
OF_THE_PAPER = ("grpo", "20-entropy", "justrl", "stapo", "stapo-v2")
ABLATIONS = {
    "high-entropy": oracle.silence_high_entropy,
    "full-mask": lambda logps, entropies, advantages, mask: oracle.silence_candidates(
        logps, advantages, mask
    ),
}
TABLES = ("logps", "old_logps", "entropies", "advantages", "mask")


@pytest.fixture
def near(make_batch) -> Callable[..., Any]:
    """Return a factory of mini-batches with probabilities close to the paper's 0.002, on both sides."""

    def make(seed: int) -> Any:
        batch = make_batch(seed)
        generator = torch.Generator().manual_seed(seed)
        logps = -8 + 4 * torch.rand(batch.mask.shape, generator=generator, dtype=torch.float64)
        for name in ("old_logps", "ref_logps"):
            setattr(batch, name, logps + getattr(batch, name) - batch.logps)
        batch.logps = logps
        return batch

    return make


def kept(name: str, batch) -> torch.Tensor:
    method = METHODS[name]
    tables = batch.logps, batch.entropies, batch.advantages, batch.mask
    return SELECTIONS[method.selection](*tables, **method.selection_args)


def loss(name: str, batch, keep: torch.Tensor) -> float:
    """Return the loss that the trainer computes of one micro-batch, the statistics being current."""
    method = METHODS[name]
    fields = MiniBatch(
        mask=batch.mask,
        advantages=batch.advantages,
        old_logps=batch.old_logps,
        old_entropies=batch.entropies,
        ref_logps=batch.ref_logps,
    )
    weights = token_weights(keep, method.aggregation, group_size=4)
    return micro_batch_loss(batch.logps, fields, weights, method)[0].item()


@SEEDS
@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_every_method_has_the_loss_of_its_formula(near, name: str, seed: int) -> None:
    batch = near(seed)
    lists = batch.lists(*TABLES)
    # DeepSeekMath's coefficient; the others have no KL term.
    ref = batch.ref_logps.tolist() if name == "grpo" else None
    expected = oracle.method_loss(name, *lists, ref, beta=0.04)
    # Weights in single precision: each of the terms has their rounding.
    assert loss(name, batch, kept(name, batch)) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@SEEDS
@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_stapo_with_other_tokens(near, name: str, seed: int) -> None:
    batch = near(seed)
    keep = kept(name, batch)
    assert keep.tolist() == ABLATIONS[name](*batch.lists(*TABLES[:1], *TABLES[2:]))
    values = oracle.clipped_surrogate(*batch.lists("logps", "old_logps", "advantages"), 0.2, 0.28)
    expected = -oracle.token_mean(values, keep.tolist())
    assert loss(name, batch, keep) == pytest.approx(expected, rel=1e-5, abs=1e-7)  # as above


@SEEDS
def test_the_random_ablation_silences_as_many_of_the_same_candidates(near, seed: int) -> None:
    batch = near(seed)
    lists, keep = batch.lists("logps", "advantages", "mask"), kept("random", batch)
    silenced = {tuple(at) for at in (batch.mask & ~keep).nonzero().tolist()}
    assert silenced <= set(oracle.candidates(*lists, 0.002))
    assert len(silenced) == oracle.num_silenced_at_random(*lists)
    values = oracle.clipped_surrogate(*batch.lists("logps", "old_logps", "advantages"), 0.2, 0.28)
    expected = -oracle.token_mean(values, keep.tolist())
    assert loss("random", batch, keep) == pytest.approx(expected, rel=1e-5, abs=1e-7)  # as above
