"""The methods as data, run through the trainer's own loss, against the paper's numbers in the loops."""

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

KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("keep_all", {}),
    "20-entropy": ("keep_high_entropy", {"fraction": 0.2}),
    "justrl": ("keep_all", {}),
    "stapo": ("silence_spurious", {"tau_p": 0.002, "quantile": 0.75, "scope": "candidates"}),
    "stapo-v2": ("silence_spurious", {"tau_p": 0.002, "quantile": 0.8, "scope": "all"}),
    "high-entropy": ("silence_high_entropy", {"tau_p": 0.002, "quantile": 0.75}),
    "full-mask": ("silence_candidates", {"tau_p": 0.002}),
}
"""The paper's methods and ablations, and the oracle's selection of each."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*KEPT, "random"])
def test_a_method_has_the_tokens_loss_and_gradient_of_its_formula(make_batch, name, seed) -> None:
    batch = make_batch(seed)
    # Probabilities close to the paper's 0.002, on both sides.
    generator = torch.Generator().manual_seed(seed)
    logps = -8 + 4 * torch.rand(batch.mask.shape, generator=generator, dtype=torch.float64)
    for other in ("old_logps", "ref_logps"):
        setattr(batch, other, logps + getattr(batch, other) - batch.logps)
    batch.logps = logps
    method, tables = METHODS[name], ("logps", "entropies", "advantages", "mask")
    keep = SELECTIONS[method.selection](
        *(getattr(batch, table) for table in tables), **method.selection_args
    )
    if name == "random":
        silenced = {tuple(at) for at in (batch.mask & ~keep).nonzero().tolist()}
        rare = oracle.candidates(*batch.lists("logps", "advantages", "mask"), 0.002)
        assert silenced <= set(rare)
        assert len(silenced) == round(0.75 * len(rare))
    else:
        selection, args = KEPT[name]
        assert keep.tolist() == oracle.select(selection, *batch.lists(*tables), **args)

    fields = MiniBatch(
        mask=batch.mask,
        advantages=batch.advantages,
        old_logps=batch.old_logps,
        old_entropies=batch.entropies,
        ref_logps=batch.ref_logps,
    )
    weights = token_weights(keep, method.aggregation, group_size=4)
    batch.logps.requires_grad_()
    loss = micro_batch_loss(batch.logps, fields, weights, method)[0]
    loss.backward()
    # DeepSeekMath's coefficient; the others have no KL term.
    of_grpo = (0.2, "sequence_mean", batch.ref_logps.tolist(), 0.04)
    expected, gradient = oracle.loss_and_gradient(
        *batch.lists("logps", "old_logps", "advantages"), keep.tolist(),
        *(of_grpo if name == "grpo" else (0.28, "token_mean")),
    )  # fmt: skip
    # Weights in single precision: each of the terms has their rounding.
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-7)
    gradient = torch.tensor(gradient, dtype=torch.float64)
    torch.testing.assert_close(batch.logps.grad, gradient, rtol=1e-6, atol=1e-12)
