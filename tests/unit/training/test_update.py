"""The loss of one micro-batch against plain loops, and the update as anybody would call it."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import oracle
import pytest
import torch
from torch import Tensor

from stapo.methods import METHODS, SELECTION_SPECS, Argument, Method, SelectionSpec
from stapo.objective import SELECTIONS
from stapo.records.step import as_line
from stapo.training.minibatch import MiniBatch
from stapo.training.ranks import Ranks
from stapo.training.update import micro_batch_loss, update

pytestmark = pytest.mark.rounding

ROWS, WIDTH, WIDER = 8, 7, 10
CLIP = replace(METHODS["justrl"], clip_low=0.1, clip_high=0.3)
CASES = {
    "clip": CLIP,
    "dual clip": replace(CLIP, dual_clip=1.5),
    "KL": replace(CLIP, kl_coefficient=0.7),
    "dual clip and KL": replace(CLIP, dual_clip=1.5, kl_coefficient=0.7),
}


def mini_batch(seed: int, dtype: torch.dtype = torch.double) -> tuple[Tensor, MiniBatch]:
    """Return current log-probs (R, W) and a batch that is wider, as of a mini-batch with longer rows.

    Log-ratios up to 1 in size reach past every clip; behind the responses stands what is no log-prob.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator, dtype=dtype)

    lengths = torch.randint(3, WIDTH + 1, (ROWS,), generator=generator)
    lengths[0], lengths[1] = 0, WIDTH
    mask = torch.arange(WIDER) < lengths.unsqueeze(1)
    logps = uniform(-8, -0.1, ROWS, WIDTH)
    old = (logps - uniform(-1, 1, ROWS, WIDTH)).clamp(max=-0.01)
    advantages = uniform(0.5, 2, ROWS) * torch.tensor([1, -1] * (ROWS // 2))
    advantages[-1] = 0.0
    inside = mask[:, :WIDTH]
    old_logps = torch.full((ROWS, WIDER), 50.0, dtype=dtype)
    old_logps[:, :WIDTH] = torch.where(inside, old, 50.0)
    ref_logps = torch.full((ROWS, WIDER), 50.0, dtype=dtype)
    ref_logps[:, :WIDTH] = torch.where(inside, logps + uniform(-1, 1, ROWS, WIDTH), 50.0)
    batch = MiniBatch(
        mask=mask,
        advantages=advantages,
        old_logps=old_logps,
        old_entropies=torch.full((ROWS, WIDER), 50.0, dtype=dtype),
        ref_logps=ref_logps,
    )
    return torch.where(inside, logps, -50.0), batch


def expected(
    logps: Tensor, batch: MiniBatch, weights: Tensor, method: Method
) -> tuple[list[float], Tensor]:
    """Return the four sums and the gradient, from the formulas."""
    old = batch.old_logps[:, :WIDTH].tolist()
    ref = batch.ref_logps[:, :WIDTH].tolist()
    advantages, current = batch.advantages.tolist(), logps.tolist()
    clip = method.clip_low, method.clip_high, method.dual_clip
    values = oracle.clipped_surrogate(current, old, advantages, *clip)
    slopes = oracle.surrogate_weights(current, old, advantages, *clip)
    kl = oracle.kl_k3(current, ref)
    beta, loss, total_kl, low, high = method.kl_coefficient, 0.0, 0.0, 0, 0
    gradient = torch.zeros_like(logps)
    for b, t in oracle.positions(batch.mask[:, :WIDTH].tolist()):
        weight = weights[b, t].item()
        ratio = oracle.safe_exp(current[b][t] - old[b][t])
        loss -= weight * (values[b][t] - beta * kl[b][t])
        slope = slopes[b][t] - beta * (1 - oracle.safe_exp(ref[b][t] - current[b][t]))
        gradient[b, t] = -weight * slope
        total_kl += kl[b][t] if beta else 0.0
        low += advantages[b] < 0 and ratio < 1 - method.clip_low
        high += advantages[b] > 0 and ratio > 1 + method.clip_high
    return [loss, total_kl, low, high], gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_loss_sums_and_gradient_are_those_of_the_formulas(name: str, seed: int) -> None:
    logps, batch = mini_batch(seed)
    # Not those of an aggregation: what lies behind a response does not count whatever its weight.
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(ROWS, WIDER, generator=generator, dtype=torch.double)
    sums, gradient = expected(logps, batch, weights, CASES[name])
    assert sums[2] > 0
    assert sums[3] > 0
    leaf = logps.clone().requires_grad_()
    loss, counted = micro_batch_loss(leaf, batch, weights, CASES[name])
    loss.backward()
    # Both in double precision, sums of some fifty terms of size 1 in another order.
    assert loss.item() == pytest.approx(sums[0], rel=1e-12, abs=1e-12)
    assert counted.tolist() == pytest.approx(sums, rel=1e-12, abs=1e-12)
    torch.testing.assert_close(leaf.grad, gradient, rtol=1e-12, atol=1e-12)


def test_a_method_without_kl_needs_no_reference() -> None:
    logps, batch = mini_batch(0)
    weights = torch.ones(ROWS, WIDER, dtype=torch.double)
    whole = micro_batch_loss(logps, batch, weights, CLIP)
    batch = replace(batch, ref_logps=None)
    loss, sums = micro_batch_loss(logps, batch, weights, CLIP)
    assert loss == whole[0]
    assert sums[1] == 0
    with pytest.raises(ValueError, match="ref_logps: missing"):
        micro_batch_loss(logps, batch, weights, CASES["KL"])


def test_a_token_counts_as_clipped_only_beyond_the_clip_and_with_a_gradient_to_lose() -> None:
    # Without any room a ratio of exactly 1 lies on both edges: its gradient is not cut off.
    method = replace(CLIP, clip_low=0.0, clip_high=0.0)
    logps = torch.full((3, 2), -1.0, dtype=torch.double)
    batch = MiniBatch(
        mask=torch.ones(3, 2, dtype=torch.bool),
        advantages=torch.tensor([1.0, -1.0, 0.0], dtype=torch.double),
        old_logps=logps.clone(),
        old_entropies=torch.zeros(3, 2),
    )
    weights = torch.ones(3, 2, dtype=torch.double)
    assert micro_batch_loss(logps, batch, weights, method)[1][2:].tolist() == [0, 0]
    # One above and one below 1 in every row: of the row of no advantage neither counts.
    batch = replace(batch, old_logps=logps + torch.tensor([0.5, -0.5], dtype=torch.double))
    assert micro_batch_loss(logps, batch, weights, method)[1][2:].tolist() == [1, 1]


# The update by itself, on one rank -----------------------------------------------------------------

SETTINGS: dict[str, Any] = {"group_size": 2, "micro_batch_tokens": 2 * WIDTH}


class Model:
    """Log-probs and entropies as tables, and the rows that it was asked for."""

    def __init__(self, logps: Tensor) -> None:
        self.leaf = logps.clone().requires_grad_()
        self.entropies = torch.linspace(0, 3, logps.numel()).view(logps.shape)
        self.without_gradient: list[int] = []

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if not torch.is_grad_enabled():
            self.without_gradient += rows.tolist()
        return self.leaf[rows], self.entropies[rows]


def keep_every(
    logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, nth: int = 2
) -> Tensor:
    """Keep every nth token by log-prob, whatever its response's advantage is."""
    order = logps.masked_fill(~mask, torch.inf).flatten().argsort()
    keep = torch.zeros_like(mask).flatten()
    keep[order[: int(mask.sum()) : nth]] = True
    return keep.view(mask.shape)


def test_a_selection_of_ones_own_gets_the_rows_that_it_declares(monkeypatch) -> None:
    """Nothing is read off its name: this one silences, and reads all responses."""
    spec = SelectionSpec(
        arguments={"nth": Argument(default=2, description="One of so many", ge=1)},
        kept=lambda n, args: -(-n // int(args["nth"])),
    )
    monkeypatch.setitem(SELECTION_SPECS, "silence_by_order", spec)
    monkeypatch.setitem(SELECTIONS, "silence_by_order", keep_every)
    method = replace(CLIP, selection="silence_by_order", selection_args={"nth": 3})
    logps, batch = mini_batch(0)
    model = Model(logps)
    loss, record = update(model, batch, method, Ranks(), statistics="current", **SETTINGS)
    assert sorted(model.without_gradient) == batch.mask.any(dim=1).nonzero().flatten().tolist()
    current = torch.nn.functional.pad(logps, (0, WIDER - WIDTH))
    keep = keep_every(current, batch.old_entropies, batch.advantages, batch.mask, 3)
    weights = keep.double() / keep.sum()
    sums, gradient = expected(logps, batch, weights, method)
    assert loss.item() == pytest.approx(sums[0], rel=1e-6)  # single precision
    torch.testing.assert_close(model.leaf.grad, gradient, rtol=1e-6, atol=1e-9)
    num_tokens = int(batch.mask.sum())
    assert record.kept_fraction == spec.kept(num_tokens, {"nth": 3}) / num_tokens
    assert record.num_silenced == 0
    assert "mask_scope" not in as_line(record)
    # Declared to read only responses of positive advantage, it sees zeros elsewhere.
    monkeypatch.setitem(SELECTION_SPECS, "silence_by_order", replace(spec, reads="positive"))
    model = Model(logps)
    update(model, batch, method, Ranks(), statistics="current", **SETTINGS)
    assert (batch.advantages[model.without_gradient] > 0).all()


def test_a_selection_that_draws_is_given_the_seed_and_no_other_is(monkeypatch) -> None:
    seeds: list[Any] = []

    def drawing(logps: Any, entropies: Any, advantages: Any, mask: Tensor, **args: Any) -> Tensor:
        seeds.append(args.get("seed"))
        return mask

    monkeypatch.setitem(SELECTIONS, "drawing", drawing)
    logps, batch = mini_batch(0)
    method = replace(CLIP, selection="drawing")
    for spec in (SelectionSpec(draws=True), SelectionSpec(), SelectionSpec(has_threshold=True)):
        monkeypatch.setitem(SELECTION_SPECS, "drawing", spec)
        _, record = update(Model(logps), batch, method, Ranks(), seed=7, **SETTINGS)
        assert (record.mask_scope is not None) == spec.has_threshold
    assert seeds[:3] == [7, None, None]


@pytest.mark.parametrize("name", METHODS)
def test_a_mini_batch_without_any_token_changes_nothing(name: str) -> None:
    logps, batch = mini_batch(0)
    model = Model(logps)
    batch = replace(batch, mask=torch.zeros_like(batch.mask))
    loss, record = update(model, batch, METHODS[name], Ranks(), statistics="current", **SETTINGS)
    assert loss == 0
    assert model.leaf.grad is None
    assert (record.num_tokens, record.entropy, record.kept_fraction, record.kl) == (0, 0, 0, 0)
    assert set(record.entropy_quantiles.values()) == {0.0}


class Pair(Ranks):
    """Two ranks, of which the other one keeps other tokens, or the same."""

    number = 2

    def __init__(self, differs: bool) -> None:
        self.differs = differs

    def sum(self, values: Tensor) -> Tensor:
        return values + (values.roll(1) if self.differs else values)


@pytest.mark.parametrize("differs", [True, False])
def test_a_selection_of_a_study_must_keep_the_same_tokens_on_all_ranks(
    tmp_path: Path, differs: bool
) -> None:
    code = "def own(logps, entropies, advantages, mask): return mask & (logps > -4)\n"
    path = tmp_path / "own.py"
    path.write_text(code)
    method = replace(
        CLIP, selection=f"{path}:own",
        selection_sha256=hashlib.sha256(code.encode()).hexdigest(),
    )  # fmt: skip
    logps, batch = mini_batch(0)
    if differs:
        with pytest.raises(ValueError, match=r"own.py:own: keeps other tokens on other ranks; let"):
            update(Model(logps), batch, method, Pair(differs), **SETTINGS)
    else:
        update(Model(logps), batch, method, Pair(differs), **SETTINGS)
