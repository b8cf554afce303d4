"""One mini-batch through the trainer's update, against a full forward pass and plain loops in double."""

import copy
from collections.abc import Iterator
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
    PROMPT,
    ROWS,
    SELECTING,
    TOKENS,
    WIDTH,
    WITH_THRESHOLD,
    Update,
    assert_same_update,
    build,
    clipped,
    forward,
    kept,
    plain_update,
    statistics_of,
)
from torch import Tensor

from stapo.methods import Method
from stapo.training.minibatch import micro_batches
from stapo.training.update import select

pytestmark = pytest.mark.rounding


@pytest.fixture(scope="module", params=[False, True], ids=["padded", "packed"])
def base(tmp_path_factory, request) -> Any:
    return build(tmp_path_factory.mktemp("trainer"), request.param)


# Whose probabilities and entropies --------------------------------------------------------------


@pytest.mark.parametrize("name", SELECTING)
def test_current_statistics_come_from_a_pass_of_the_current_weights(base, name: str) -> None:
    _, batch, plain = base
    method = SELECTING[name]
    behaviour = batch["old_per_token_logps"], batch["old_entropies"]
    current = statistics_of(plain, batch)
    keep = kept(method, current, batch)
    # The test tells the policies apart, and each half of the rows matters where all set the threshold.
    assert keep != kept(method, behaviour, batch)
    update = Update(base, method, step=1, statistics="current")
    assert_same_update(update, plain_update(plain, method, batch, keep))
    assert update.record["kept_fraction"] == sum(map(sum, keep)) / sum(LENGTHS)


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize(("step", "statistics"), [(1, "behaviour"), (2, "current")])
def test_otherwise_they_are_the_behaviour_policys_and_cost_no_pass(
    base, name: str, step: int, statistics: str
) -> None:
    """Step 2 is the first of a rollout of two mini-batches: nothing has changed since."""
    _, batch, plain = base
    keep = kept(SELECTING[name], (batch["old_per_token_logps"], batch["old_entropies"]), batch)
    update = Update(base, SELECTING[name], step, statistics)
    assert update.for_statistics == []
    assert_same_update(update, plain_update(plain, SELECTING[name], batch, keep))


@pytest.mark.parametrize(
    ("name", "rows"),
    [("candidates", POSITIVE), ("high entropy", POSITIVE), ("full mask", POSITIVE),
     ("all", TOKENS), ("high entropy of all", TOKENS), ("20-entropy", TOKENS)],
)  # fmt: skip
def test_the_pass_is_over_the_rows_that_can_matter(base, name: str, rows: list[int]) -> None:
    """Candidates have A > 0; a threshold over all tokens, or a ranking of them, needs every token."""
    update = Update(base, SELECTING[name], step=1, statistics="current")
    assert sorted(row for part in update.for_statistics for row in part) == rows
    assert len(update.for_statistics) > 1


def test_keeping_everything_needs_no_statistics(base) -> None:
    update = Update(base, clipped("justrl"), step=1, statistics="current")
    assert update.for_statistics == []


# The loss ---------------------------------------------------------------------------------------

SILENCING = ("candidates", "all", "high entropy", "high entropy of all")
WHOLE = {
    **WITH_THRESHOLD,
    "justrl": clipped("justrl"),
    "grpo": clipped("grpo", kl_coefficient=0.3),
    "by group": clipped("justrl", aggregation="group_token_mean"),
    "dual clip": clipped("justrl", dual_clip=1.05),
}


@pytest.mark.parametrize("name", WHOLE)
def test_loss_gradient_and_record_are_those_of_the_formulas(base, name: str) -> None:
    _, batch, plain = base
    method = WHOLE[name]
    keep = kept(method, (batch["old_per_token_logps"], batch["old_entropies"]), batch)
    update = Update(base, method, step=0, statistics="behaviour")
    assert_same_update(update, plain_update(plain, method, batch, keep))
    logps, old = forward(plain, batch)[0].tolist(), batch["old_per_token_logps"].tolist()
    kl = oracle.kl_k3(logps, batch["ref_per_token_logps"].tolist())
    tokens = oracle.positions(batch["completion_mask"].bool().tolist())
    # A sequence of which nothing is kept is not computed.
    ratios = [(b, oracle.safe_exp(logps[b][t] - old[b][t])) for b, t in tokens if any(keep[b])]
    low = sum(ADVANTAGES[b] < 0 and ratio < 1 - 0.1 for b, ratio in ratios)
    high = sum(ADVANTAGES[b] > 0 and ratio > 1 + 0.15 for b, ratio in ratios)
    assert min(low, high) > 0
    assert update.record["clip_low_fraction"] == low / len(tokens)
    assert update.record["clip_high_fraction"] == high / len(tokens)
    mean_kl = sum(kl[b][t] for b, t in tokens) / len(tokens) if method.kl_coefficient else 0.0
    assert update.record["kl"] == pytest.approx(mean_kl, rel=1e-4)  # single precision, as above
    assert update.record["loss"] == pytest.approx(update.loss, rel=1e-6)  # as a tensor: single
    assert update.record["num_tokens"] == sum(LENGTHS)
    tables = batch["old_per_token_logps"].tolist(), ADVANTAGES, batch["completion_mask"].tolist()
    tau_p = method.selection_args.get("tau_p", 0.002)
    assert update.record["num_candidates"] == len(oracle.candidates(*tables, tau_p))
    num_silenced = sum(LENGTHS) - sum(map(sum, keep))
    assert update.record["num_silenced"] == (num_silenced if name in SILENCING else 0)
    truncated = 1 - len(ENDED) / len(ROWS)
    assert update.record["truncated_fraction"] == pytest.approx(truncated, rel=1e-6)
    assert update.record["reward"] == pytest.approx(MEAN_REWARD, rel=1e-6)


def test_dual_clip_and_kl_are_felt(base) -> None:
    """Otherwise the test above could not tell whether they are used."""
    _, batch, plain = base
    keep = kept(clipped("justrl"), (batch["old_per_token_logps"], batch["old_entropies"]), batch)
    plain_losses = [
        plain_update(plain, method, batch, keep)[0]
        for method in (clipped("justrl"), WHOLE["dual clip"], clipped("justrl", kl_coefficient=0.3))
    ]
    assert min(abs(plain_losses[0] - other) for other in plain_losses[1:]) > 1e-3


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        (clipped("justrl"), [row for row in TOKENS if ADVANTAGES[row]]),
        (clipped("grpo", kl_coefficient=0.3), TOKENS),
        # Every token of a positive advantage is a candidate, and silenced: nothing of it is left.
        (clipped("full-mask", selection_args={"tau_p": 1.1}), [r for r in TOKENS if ADVANTAGES[r] < 0]),
    ],
    ids=["no advantage", "KL", "nothing kept"],
)  # fmt: skip
def test_sequences_without_gradient_are_not_computed(base, method, rows: list[int]) -> None:
    update = Update(base, method, step=0, statistics="behaviour")
    assert sorted(row for part in update.for_gradient for row in part) == rows


@pytest.mark.parametrize("budget", [1, 40, 90, 10_000])
def test_micro_batches_keep_to_the_budget_and_change_nothing(base, budget: int) -> None:
    trainer, batch, plain = base
    method = WITH_THRESHOLD["all"]
    update = Update(base, method, step=1, statistics="current", micro_batch_tokens=budget)
    prompts = batch["prompt_mask"].sum(dim=1).tolist()
    for rows in update.for_gradient + update.for_statistics:
        positions = len(rows) * (max(prompts[r] for r in rows) + max(LENGTHS[r] for r in rows))
        if trainer.args.packed:
            positions = sum(prompts[row] + LENGTHS[row] for row in rows)
        assert positions <= budget or len(rows) == 1
    assert (len(update.for_gradient) == 1) == (budget == 10_000)
    keep = kept(method, statistics_of(plain, batch), batch)
    assert_same_update(update, plain_update(plain, method, batch, keep))


@pytest.fixture
def without_advantage(base) -> Iterator[Any]:
    """A mini-batch of right answers only; the first parameter is frozen."""
    trainer, batch, plain = base
    frozen = next(trainer.model.parameters())
    frozen.requires_grad_(False)
    yield trainer, {**batch, "advantages": torch.zeros(len(ROWS))}, plain
    frozen.requires_grad_(True)


def test_without_any_gradient_the_gradient_is_zero_and_not_missing(without_advantage) -> None:
    """Adam's moments decay all the same; what is frozen stays without one."""
    trainer, batch, _ = without_advantage
    trainer = copy.copy(trainer)
    trainer.method = clipped("justrl")
    trainer.model.zero_grad()
    assert trainer._accumulate_gradients(trainer.model, batch).item() == 0.0
    first, *others = trainer.model.parameters()
    assert first.grad is None
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in others)


# The choice of tokens ---------------------------------------------------------------------------


def chosen(base: Any, method: Method, entropies: Tensor, seed: int = 0) -> Tensor:
    _, batch, _ = base
    mask = batch["completion_mask"].bool()
    return select(method, batch["old_per_token_logps"], entropies, batch["advantages"], mask, seed)


@pytest.mark.parametrize("name", WITH_THRESHOLD)
def test_rounding_does_not_choose_among_equal_entropies(base, name: str) -> None:
    """Tokens after the same context have one entropy, computed with an error of some 1e-6."""
    generator = torch.Generator().manual_seed(0)
    shape = len(ROWS), WIDTH
    equal = torch.randint(0, 3, shape, generator=generator) / 2.0
    noisy = equal + 1e-5 * torch.randn(shape, generator=generator)
    method = WITH_THRESHOLD[name]
    assert torch.equal(chosen(base, method, noisy), chosen(base, method, equal))


def test_every_step_and_seed_draws_anew_and_the_same_again(base, monkeypatch) -> None:
    trainer, batch, _ = base
    method = clipped("random", selection_args={"tau_p": 1.1, "quantile": 0.5})
    seeds: list[int] = []

    def recorded(*args: Any) -> Tensor:
        seeds.append(args[-1])
        return select(*args)

    monkeypatch.setattr("stapo.training.update.select", recorded)
    state = copy.copy(trainer.state)
    monkeypatch.setattr(trainer, "state", state)

    def draw(seed: int, step: int) -> Tensor:
        state.global_step = step
        Update(base, method, step=0, statistics="behaviour", seed=seed)
        return chosen(base, method, batch["old_entropies"], seeds[-1])

    draws = [draw(seed, step) for seed in range(4) for step in range(4)]
    assert len(set(seeds)) == 16
    for one in draws:
        assert sum(torch.equal(one, other) for other in draws) == 1
    assert torch.equal(draw(3, 2), draws[3 * 4 + 2])


@pytest.mark.parametrize("name", WITH_THRESHOLD)
def test_the_meter_compares_with_a_threshold_per_micro_batch(base, name: str) -> None:
    trainer, batch, _ = base
    method = WITH_THRESHOLD[name]
    # Two sequences of any length here, if they are padded.
    update = Update(
        base, method, step=0, statistics="behaviour", micro_batch_tokens=2 * (PROMPT + WIDTH)
    )
    keep = kept(method, (batch["old_per_token_logps"], batch["old_entropies"]), batch)
    keep_apart: list[Any] = [None] * len(ROWS)
    mask = batch["completion_mask"].bool()
    prompts = batch["prompt_mask"].sum(dim=1)
    responses, budget = torch.tensor(LENGTHS), 2 * (PROMPT + WIDTH)
    every, packed = torch.arange(len(ROWS)), trainer.args.packed
    for rows in micro_batches(prompts, responses, every, budget, packed):
        part = {key: value[rows] for key, value in batch.items()}
        kept_here = kept(method, (part["old_per_token_logps"], part["old_entropies"]), part)
        for row, row_kept in zip(rows.tolist(), kept_here, strict=True):
            keep_apart[row] = row_kept
    tokens = oracle.positions(mask.tolist())
    record = update.record["mask_scope"]
    dropped = sum(not keep[b][t] for b, t in tokens)
    assert record["mini_batch"] == {"num_dropped": dropped, "num_different": 0}
    assert record["rank"] == record["mini_batch"]
    assert record["micro_batch"] == {
        "num_dropped": sum(not keep_apart[b][t] for b, t in tokens),
        "num_different": sum(keep_apart[b][t] != keep[b][t] for b, t in tokens),
    }
    assert record["micro_batch"]["num_different"] > 0
    assert "mask_scope" not in Update(base, clipped("justrl"), 0, "behaviour").record
