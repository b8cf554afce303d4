"""One mini-batch through the trainer's update, against a full forward pass and plain loops in double."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import oracle
import pytest
import torch
from one_update import (
    ADVANTAGES,
    ENDED,
    LENGTHS,
    MEAN_REWARD,
    POSITIVE,
    ROWS,
    TOKENS,
    WHOLE,
    Update,
    assert_same_update,
    clipped,
    forward,
    kept,
    plain_update,
    statistics_of,
)
from torch import Tensor

from stapo.core.conformance.trainers import RankAccelerator
from stapo.core.loss import TokenTables, micro_batch_loss
from stapo.core.methods import METHODS, PARTS
from stapo.core.methods.parts import Part
from stapo.core.metrics import rollout_mismatch
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import SELECTIONS
from stapo.core.ranks import AcceleratorRanks
from stapo.core.update import accumulate_gradient

pytestmark = pytest.mark.rounding

SILENCING = ("candidates", "all", "high entropy", "high entropy of all", "full mask")


@pytest.mark.parametrize("budget", [pytest.param(1, marks=pytest.mark.slow), 40, 10_000])
@pytest.mark.parametrize(("step", "statistics"), [(0, "current"), (1, "behaviour"), (1, "current")])
@pytest.mark.parametrize("name", WHOLE)
def test_loss_gradient_and_record_are_those_of_the_formulas(
    base, name: str, step: int, statistics: str, budget: int
) -> None:
    """Step 0 is the first of a rollout of two mini-batches: nothing has changed since."""
    _, batch, plain = base
    method, behaviour = WHOLE[name], (batch["old_per_token_logps"], batch["old_entropies"])
    moved = statistics == "current" and step == 1
    seen = statistics_of(plain, batch) if moved else behaviour
    keep = kept(method, seen, batch)
    # The test tells the policies apart.
    assert not moved or method.reads == "none" or keep != kept(method, behaviour, batch)
    found = Update(base, method, step, statistics, micro_batch_tokens=budget)
    assert_same_update(found, plain_update(plain, method, batch, keep))
    # Every needed sequence once. Candidates have A > 0; a threshold over all tokens, or a
    # ranking of them, needs every token.
    read = (TOKENS if method.reads == "all" else POSITIVE) if moved else []
    with_gradient = [b for b in TOKENS if ADVANTAGES[b] or method.kl_coefficient]
    with_gradient = [b for b in with_gradient if any(keep[b])]
    for passes, rows in ((found.for_statistics, read), (found.for_gradient, with_gradient)):
        assert sorted(row for part in passes for row in part) == rows
    assert_record(found, base, method, keep, name in SILENCING)


def assert_record(found: Update, base: Any, method: Any, keep: list, silences: bool) -> None:
    """Check the numbers of a step that the formulas give."""
    _, batch, plain = base
    record = found.record
    logps, old = forward(plain, batch)[0].tolist(), batch["old_per_token_logps"].tolist()
    kl = oracle.kl_k3(logps, batch["ref_per_token_logps"].tolist())
    tokens = oracle.positions(batch["completion_mask"].bool().tolist())
    # A sequence of which nothing is kept is not computed.
    ratios = [(b, oracle.safe_exp(logps[b][t] - old[b][t])) for b, t in tokens if any(keep[b])]
    low = sum(ADVANTAGES[b] < 0 and ratio < 1 - 0.1 for b, ratio in ratios)
    high = sum(ADVANTAGES[b] > 0 and ratio > 1 + 0.15 for b, ratio in ratios)
    assert min(low, high) > 0
    assert record["clip_low_fraction"] == low / len(tokens)
    assert record["clip_high_fraction"] == high / len(tokens)
    mean_kl = sum(kl[b][t] for b, t in tokens) / len(tokens) if method.kl_coefficient else 0.0
    assert record["kl"] == pytest.approx(mean_kl, rel=1e-4)  # single precision, as the update
    assert record["loss"] == pytest.approx(found.loss, rel=1e-6)  # as a tensor: single
    num_kept = sum(map(sum, keep))
    assert record["num_tokens"] == sum(LENGTHS)
    assert record["kept_fraction"] == num_kept / sum(LENGTHS)
    assert record["num_silenced"] == (sum(LENGTHS) - num_kept if silences else 0)
    assert record["truncated_fraction"] == pytest.approx(1 - len(ENDED) / len(ROWS), rel=1e-6)
    assert record["reward"] == pytest.approx(MEAN_REWARD, rel=1e-6)
    for part, count in (
        ("candidate_fraction", "num_candidates"),
        ("silenced_fraction", "num_silenced"),
    ):
        assert record[part] == record[count] / sum(LENGTHS)
    assert record["zero_advantage_fraction"] == pytest.approx(ADVANTAGES.count(0) / len(ROWS))
    assert record["response_length"] == pytest.approx(sum(LENGTHS) / len(ROWS))
    entropies = batch["old_entropies"][batch["completion_mask"].bool()].double()
    assert record["entropy"] == pytest.approx(entropies.mean().item())
    assert record["entropy_quantiles"]["0.5"] == pytest.approx(entropies.median().item(), rel=0.1)
    assert 0 <= record["touched_fraction"] <= 1 >= record["touched_weight"]


def test_without_any_gradient_the_gradient_is_zero_and_not_missing(base) -> None:
    """Adam's moments decay all the same; what is frozen stays without one."""
    trainer, batch, _ = base
    trainer = copy.copy(trainer)
    trainer.method = clipped("justrl", selection=lambda *tables: torch.zeros_like(tables[-1]))
    trainer.model.zero_grad()
    assert trainer._accumulate_gradients(trainer.model, batch).item() == 0.0
    trainer.method = clipped("justrl")
    trainer.model.zero_grad()
    first, *others = trainer.model.parameters()
    first.requires_grad_(False)
    batch = {**batch, "advantages": torch.zeros(len(ROWS))}
    try:
        assert trainer._accumulate_gradients(trainer.model, batch).item() == 0.0
    finally:
        first.requires_grad_(True)
    assert first.grad is None
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in others)


def test_every_step_and_seed_draws_anew(base, monkeypatch) -> None:
    trainer, _, _ = base
    given: list[Any] = []

    def drawing(logps: Any, entropies: Any, advantages: Any, mask: Tensor, **args: Any) -> Tensor:
        given.append(args["seed"])
        return mask

    monkeypatch.setitem(SELECTIONS, "drawing", drawing)
    monkeypatch.setitem(PARTS["selection"], "drawing", Part(reads="all", given=("seed",)))
    monkeypatch.setattr(trainer, "state", copy.copy(trainer.state))
    for seed in range(4):
        for trainer.state.global_step in range(4):
            Update(base, clipped("justrl", selection="drawing"), 0, "behaviour", seed=seed)
    assert len(given) == len(set(given)) == 16


# Without a trainer


def tables(**changes: Any) -> tuple[Tensor, MiniBatch]:
    """Return current log-probs of three responses with A > 0, < 0 and 0, and their mini-batch."""
    logps = torch.full((3, 2), -1.0, dtype=torch.double)
    given: dict[str, Any] = {
        "mask": torch.ones(3, 2, dtype=torch.bool),
        "advantages": torch.tensor([1.0, -1.0, 0.0], dtype=torch.double),
        "old_logps": logps.clone(),
        "old_entropies": torch.zeros(3, 2, dtype=torch.double),
    }
    return logps, MiniBatch(**given | changes)


def equal_weights(batch: MiniBatch) -> TokenTables:
    """Return tables of a method that changes nothing and adds the values of all tokens."""
    ones = torch.ones_like(batch.old_logps)
    return TokenTables(batch.mask, ones, ones, 0 * ones)


def test_responses_whose_advantages_a_method_sets_to_0_are_touched() -> None:
    logps, batch = tables()
    batch = replace(batch, group_advantages=batch.advantages, advantages=torch.eye(3)[0].double())
    _, record = accumulate_gradient(Model(logps), batch, METHODS["wapo"], ALONE, **SETTINGS)
    # Two of six tokens; those with A = 0 have no slope.
    assert (record.touched_fraction, record.touched_weight) == pytest.approx((2 / 6, 2 / 4))


def test_the_clip_of_responses_is_compared_with_ratios_of_responses() -> None:
    logps, batch = tables(advantages=torch.tensor([1.0, -1.0, 1.0], dtype=torch.double))
    batch = replace(batch, old_logps=logps + torch.tensor([[0.1, -0.1], [0.1, -0.1], [-0.1, -0.1]]))
    method = replace(METHODS["gspo"], clip_low=0.01, clip_high=0.01)
    _, record = accumulate_gradient(Model(logps), batch, method, ALONE, **SETTINGS)
    assert (record.clip_low_fraction, record.clip_high_fraction) == pytest.approx((0, 2 / 6))


def test_what_a_method_touches_and_the_loss_of_its_penalty_by_hand() -> None:
    method = replace(METHODS["entropy-bonus"], weighting="advantage_reweighting")
    logps, batch = tables(advantages=torch.tensor([0.01, -1.0, 0.0], dtype=torch.double))
    keep = torch.tensor([[True, True], [True, False], [True, True]])
    factors, coefficients = torch.ones_like(logps), torch.zeros_like(logps)
    factors[0, 1], coefficients[0, 0] = 1.1, 0.5
    given = TokenTables(keep, keep.double(), factors, coefficients)
    entropies = torch.full_like(logps, 2.0)
    loss, sums = micro_batch_loss(logps, entropies, batch, given, method)
    # Half of the entropy for the first token, a factor for the second; one is silenced.
    assert loss.item() == pytest.approx(-(0.01 + 0.5 * 2 + 0.011 - 1))
    found = [float(value) for value in (sums.touched, sums.slope_changes, sums.plain_slopes)]
    assert found == pytest.approx([3, 0.001 + 1, 0.01 + 0.01 + 1 + 1])
    assert given.touched().tolist() == [[True, True], [False, True], [False, False]]
    assert replace(batch, prompt_lengths=torch.arange(3)).lengths()[0].tolist() == [0, 1, 2]


def test_a_token_counts_as_clipped_only_beyond_the_clip_and_with_a_gradient_to_lose() -> None:
    # Without any room a ratio of exactly 1 lies on both edges: its gradient is not cut off.
    method = replace(METHODS["justrl"], clip_low=0.0, clip_high=0.0)
    logps, batch = tables()
    given = equal_weights(batch)
    sums = micro_batch_loss(logps, None, batch, given, method)[1]
    assert (sums.clipped_low, sums.clipped_high) == (0, 0)
    # One above and one below 1 in every row: of the row of no advantage neither counts.
    batch = replace(batch, old_logps=logps + torch.tensor([0.5, -0.5], dtype=torch.double))
    sums = micro_batch_loss(logps, None, batch, given, method)[1]
    assert (sums.clipped_low, sums.clipped_high) == (1, 1)


def test_what_lies_behind_a_response_does_not_count_and_a_kl_term_needs_a_reference() -> None:
    mask = torch.tensor([[True, False]] * 3)
    method, losses = METHODS["grpo"], []
    for garbage in (-1.0, float("nan")):
        logps, batch = tables(mask=mask)
        logps[:, 1] = garbage
        batch = replace(batch, ref_logps=logps - 0.3)
        losses.append(micro_batch_loss(logps, None, batch, equal_weights(batch), method)[0])
    assert torch.equal(*losses)
    with pytest.raises(ValueError, match="ref_logps: missing"):
        logps, batch = tables()
        micro_batch_loss(logps, None, batch, equal_weights(batch), method)


@pytest.mark.parametrize(
    ("theirs", "mean", "largest", "changed"),
    [
        ([0.5, 0.001, 0.1, 0.5, 0.001, 0.9], 0.0, 0.0, 0.0),
        ([0.5, 0.004, 0.1, 0.5, 0.001, 0.9], math.log(4) / 5, math.log(4), 1.0),
        ([0.5, 0.001, 0.001, 0.5, 0.001, 0.9], math.log(100) / 5, math.log(100), 0.5),
        # Without advantage it is no candidate, and behind the response nothing counts.
        ([0.5, 0.001, 0.1, 0.5, 0.1, 0.001], math.log(100) / 5, math.log(100), 0.0),
        ([0.5, math.nan, 0.2, 0.5, 0.001, math.nan], math.log(2) / 4, math.log(2), 0.0),
        ([math.nan] * 6, 0.0, 0.0, 0.0),
    ],
    ids=["equal", "no candidate any more", "one more", "no candidates", "unknown", "all unknown"],
)
def test_mean_maximum_and_changed_candidates_of_vllm(theirs, mean, largest, changed):
    batch = MiniBatch(
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        advantages=torch.tensor([1.0, -1.0]),
        old_logps=torch.tensor([[0.5, 0.001, 0.1], [0.5, 0.001, 0.9]]).log(),
        old_entropies=torch.zeros(2, 3),
        rollout_logps=torch.tensor(theirs).view(2, 3).log(),
    )
    # Logarithms in single precision.
    assert rollout_mismatch(batch, 0.002) == pytest.approx((mean, largest, changed), abs=1e-6)


class Model:
    """Log-probs and entropies as tables."""

    def __init__(self, logps: Tensor) -> None:
        self.leaf = logps.clone().requires_grad_()

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.leaf[rows], self.leaf[rows].abs()


ALONE = AcceleratorRanks(RankAccelerator.alone())
SETTINGS: dict[str, Any] = {"group_size": 3, "micro_batch_tokens": 4}


@pytest.mark.parametrize("name", METHODS)
def test_a_mini_batch_without_any_token_changes_nothing(name: str) -> None:
    logps, batch = tables(mask=torch.zeros(3, 2, dtype=torch.bool))
    batch = replace(batch, proxy_logps=logps)
    model = Model(logps)
    loss, record = accumulate_gradient(
        model, batch, METHODS[name], ALONE, statistics="current", **SETTINGS
    )
    assert loss == 0
    assert model.leaf.grad is None
    assert (record.num_tokens, record.entropy, record.kept_fraction, record.kl) == (0, 0, 0, 0)
    assert record.touched_weight == 0
    assert set(record.entropy_quantiles.values()) == {0.0}


def test_statistics_of_the_current_policy_keep_their_precision() -> None:
    logps, batch = tables()
    batch, seen = replace(batch, rollout_logps=logps - 0.5), []
    _, record = accumulate_gradient(
        Model(logps / 3), batch, METHODS["stapo-v2"], ALONE, statistics="current",
        selected=lambda *tables: seen.extend(tables[:2]), **SETTINGS,
    )  # fmt: skip
    assert torch.equal(seen[0], logps / 3)
    assert torch.equal(seen[1], -logps / 3)
    found = record.rollout_mismatch, record.rollout_mismatch_max, record.rollout_changed_fraction
    assert found == (0.5, 0.5, 0.0)


def test_a_response_without_advantage_has_the_gradient_of_a_penalty() -> None:
    logps, batch = tables(mask=torch.tensor([[True, True], [True, True], [True, False]]))
    model = Model(logps)
    accumulate_gradient(model, batch, METHODS["entropy-bonus"], ALONE, **SETTINGS)
    assert (model.leaf.grad[2] != 0).tolist() == [True, False]


def test_a_divisor_counts_all_tokens_or_the_longest_response_where_a_method_says_so(base) -> None:
    logps, batch = tables()
    keep = torch.tensor([[True, False], [True, True], [True, True]])
    for divisor, weight in (("kept", 1 / 5), ("all", 1 / 6)):
        given = replace(METHODS["justrl"], divisor=divisor), batch, keep, logps, -logps, 3, 2, None
        assert TokenTables.build(*given).loss_weights[0].tolist() == pytest.approx([weight, 0])
    constant = METHODS["dr-grpo"]
    usual = replace(constant, aggregation="token_mean")
    losses = [Update(base, method, 0, "behaviour").loss for method in (constant, usual)]
    share = sum(LENGTHS) / (len(ROWS) * base[0].max_completion_length)
    assert losses[0] == pytest.approx(losses[1] * share, rel=1e-5)


class Pair(AcceleratorRanks):
    """Two ranks, of which the other one keeps other tokens, or the same."""

    def __init__(self, differs: bool) -> None:
        super().__init__(ALONE.accelerator)
        self.number, self.differs = 2, differs

    def sum(self, values: Tensor) -> Tensor:
        return values + (values.roll(1) if self.differs else values)


@pytest.mark.parametrize(
    ("returned", "differs", "error"),
    [
        (lambda mask, advantages: mask & (advantages.unsqueeze(1) > 0), False, None),
        (lambda mask, _: mask.clone(), True, "keeps other tokens on other ranks"),
        (lambda mask, _: mask.float(), False, "expected a bool tensor of shape .3, 2., found"),
        (lambda mask, _: mask[:1], False, "expected a bool tensor of shape .3, 2., found"),
        (lambda mask, _: None, False, "expected a bool tensor of shape .3, 2., found None"),
        (lambda mask, _: ~mask, False, "keeps positions outside mask; return `mask & ...`"),
    ],
)
def test_a_selection_of_ones_own_returns_the_same_mask_on_all_ranks(
    returned: Callable[[Tensor, Tensor], Any], differs: bool, error: str | None
) -> None:
    def own(logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor) -> Any:
        logps.zero_()
        return returned(mask, advantages)

    method = replace(METHODS["justrl"], selection=own)
    logps, batch = tables(mask=torch.tensor([[True, False], [True, True], [True, True]]))
    before = batch.old_logps.clone()
    if error:
        with pytest.raises(ValueError, match=f"own: {error}"):
            accumulate_gradient(Model(logps), batch, method, Pair(differs), **SETTINGS)
    else:
        accumulate_gradient(Model(logps), batch, method, Pair(differs), **SETTINGS)
    # Whatever it does to its arguments.
    assert torch.equal(batch.old_logps, before)
