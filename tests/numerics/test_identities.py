"""What must hold exactly between methods, at the edges of each inequality, and under padding and order."""

import math

import pytest
import torch
from torch import Tensor

from stapo.objective import (
    SELECTIONS,
    clipped_surrogate,
    group_advantages,
    group_token_mean,
    keep_all,
    keep_high_entropy,
    sequence_mean,
    silence_candidates,
    silence_high_entropy,
    silence_random,
    silence_spurious,
    token_mean,
    token_quadrants,
)

SEEDS = pytest.mark.parametrize("seed", range(3))


def double(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def loss_and_gradient(batch, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of the clip-higher, token-mean family with these tokens kept, and its gradient."""
    logps = batch.logps.clone().requires_grad_()
    loss = -token_mean(clipped_surrogate(logps, batch.old_logps, batch.advantages, 0.2, 0.28), keep)
    loss.backward()
    return loss.detach(), logps.grad


def selection_arguments(batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return batch.logps, batch.entropies, batch.advantages, batch.mask


# Methods that coincide --------------------------------------------------------------------------


@SEEDS
@pytest.mark.parametrize("tau_p", [0.0, 1e-300])
@pytest.mark.parametrize("scope", ["candidates", "all"])
def test_stapo_without_rare_tokens_is_justrl(
    make_batch, seed: int, tau_p: float, scope: str
) -> None:
    batch = make_batch(seed)
    keep = silence_spurious(*selection_arguments(batch), tau_p=tau_p, scope=scope)
    assert torch.equal(keep, batch.mask)
    loss, gradient = loss_and_gradient(batch, keep)
    expected_loss, expected_gradient = loss_and_gradient(
        batch, keep_all(*selection_arguments(batch))
    )
    assert torch.equal(loss, expected_loss)
    assert torch.equal(gradient, expected_gradient)


@SEEDS
def test_stapo_is_not_justrl_with_rare_tokens(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    keep = silence_spurious(*selection_arguments(batch))
    assert not torch.equal(keep, batch.mask)
    assert loss_and_gradient(batch, keep)[0] != loss_and_gradient(batch, batch.mask)[0]


@SEEDS
def test_20_entropy_with_every_token_is_justrl(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    keep = keep_high_entropy(batch.entropies, batch.mask, fraction=1.0)
    assert torch.equal(keep, batch.mask)
    assert not torch.equal(keep_high_entropy(batch.entropies, batch.mask, 0.2), batch.mask)


@SEEDS
def test_ablations_coincide_where_their_definitions_do(make_batch, seed: int) -> None:
    args = selection_arguments(make_batch(seed))
    everything = silence_candidates(*args, tau_p=0.002)
    assert torch.equal(silence_random(*args, tau_p=0.002, quantile=1.0), everything)
    assert torch.equal(silence_random(*args, tau_p=0.002, quantile=0.0), args[3])
    assert torch.equal(silence_spurious(*args, quantile=0.0), args[3])
    # At q = 1 the threshold is an extreme of the entropies; strictness spares that one candidate.
    assert (silence_spurious(*args, quantile=1.0) & ~everything).sum() == 1
    assert (silence_high_entropy(*args, quantile=1.0) & ~everything).sum() == 1


# Advantages -------------------------------------------------------------------------------------


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


@SEEDS
def test_advantages_are_centred_and_scaled_within_their_group(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(24, generator=generator, dtype=torch.float64)
    groups = group_advantages(rewards, 8).view(3, 8)
    # eps = 1e-6 against a std of about 0.3 shows in the sixth digit.
    torch.testing.assert_close(groups.std(dim=1), torch.ones(3).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(groups.mean(dim=1), torch.zeros(3).double(), rtol=0, atol=1e-12)
    changed = rewards.clone()
    changed[8:16] *= -3
    again = group_advantages(changed, 8).view(3, 8)
    assert torch.equal(again[[0, 2]], groups[[0, 2]])


# Clipping ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "dual_clip", "clipped"),
    [
        (1.0, math.log(1.27), None, False),
        (1.0, math.log(1.29), None, True),
        (1.0, math.log(0.5), None, False),
        (-1.0, math.log(0.81), None, False),
        (-1.0, math.log(0.79), None, True),
        (-1.0, math.log(1.5), None, False),
        (-1.0, math.log(9.9), 10.0, False),
        (-1.0, math.log(10.1), 10.0, True),
        (1.0, math.log(0.05), 10.0, False),
        (0.0, math.log(1.1), None, True),
    ],
    ids=[
        "A>0 in",
        "A>0 above",
        "A>0 below is no clip",
        "A<0 in",
        "A<0 below",
        "A<0 above is no clip",
        "A<0 under the dual clip",
        "A<0 over the dual clip",
        "A>0 has no dual clip",
        "A=0",
    ],
)
def test_clipped_tokens_have_no_gradient(advantage, log_ratio, dual_clip, clipped) -> None:
    logps = double([[-3.0, -3.0]]).requires_grad_()
    old = double([[-3.0 - log_ratio, -3.0]])
    values = clipped_surrogate(logps, old, double([advantage]), 0.2, 0.28, dual_clip)
    values.sum().backward()
    slope = logps.grad[0, 0].item()
    if clipped:
        assert slope == 0.0
    else:
        assert slope == pytest.approx(math.exp(log_ratio) * advantage, rel=1e-12)  # a few roundings
    assert logps.grad[0, 1] == advantage  # ratio 1: the policy gradient itself


@SEEDS
def test_tokens_not_kept_have_no_gradient(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    keep = silence_spurious(*selection_arguments(batch))
    assert (loss_and_gradient(batch, keep)[1][~keep] == 0).all()
    assert (loss_and_gradient(batch, keep)[1][keep] != 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_in_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    """A weight of 1 / 393,216 is not exact in half precision; only the mean itself may be rounded."""
    keep = torch.ones(4, 3 * 2**15, dtype=torch.bool)
    values = torch.full(keep.shape, 0.75, dtype=dtype)
    for mean in (token_mean(values, keep), sequence_mean(values, keep)):
        assert mean.dtype == dtype
        assert mean.item() == 0.75


def test_the_mean_over_no_token_is_zero_with_gradient_zero() -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for aggregate in (token_mean, sequence_mean):
        values = torch.full((2, 3), 5.0, dtype=torch.float64, requires_grad=True)
        mean = aggregate(values, nothing)
        mean.backward()
        assert mean.item() == 0.0
        assert torch.equal(values.grad, torch.zeros(2, 3, dtype=torch.float64))


def test_the_divisor_counts_kept_tokens_only() -> None:
    values = double([[1.0, 2.0, 6.0], [4.0, 8.0, 16.0]])
    keep = torch.tensor([[True, False, True], [False, True, False]])
    assert token_mean(values, keep) == 5.0
    assert sequence_mean(values, keep) == (3.5 + 8.0) / 2
    keep[1] = False
    assert sequence_mean(values, keep) == 3.5  # a response without a token does not count


def test_the_groups_of_one_response_and_of_all_are_the_other_aggregations() -> None:
    values = double([[1.0, 2.0, 6.0], [4.0, 8.0, 16.0], [3.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    keep = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    assert group_token_mean(values, keep, group_size=4) == token_mean(values, keep) == 18 / 4
    assert group_token_mean(values, keep, group_size=1) == sequence_mean(values, keep) == 14.5 / 3
    assert group_token_mean(values, keep, group_size=2) == (5.0 + 3.0) / 2
    keep[:2] = False
    assert (
        group_token_mean(values, keep, group_size=2) == 3.0
    )  # a group without a token does not count
    with pytest.raises(ValueError, match="group_size: 4 responses are not a multiple of 3"):
        group_token_mean(values, keep, group_size=3)


# Strictness of the three inequalities of S2T ----------------------------------------------------

# Two candidates of entropy 1 and 2 beside the token at hand; at quantile 1 the threshold is exactly 2.
OTHER_LOGPS, OTHER_ENTROPIES = [-20.0, -20.0], [1.0, 2.0]


def is_silenced(logp: float, entropy: float, advantage: float, tau_p: float, scope: str) -> bool:
    keep = silence_spurious(
        double([[logp, 0.0, 0.0], [*OTHER_LOGPS, 0.0]]),
        double([[entropy, 0.0, 0.0], [*OTHER_ENTROPIES, 0.0]]),
        double([advantage, 1.0]),
        torch.tensor([[True, False, False], [True, True, False]]),
        tau_p=tau_p,
        quantile=1.0,
        scope=scope,
    )
    assert keep[1].tolist() == [False, True, False]
    return not keep[0, 0].item()


@pytest.mark.parametrize("scope", ["candidates", "all"])
@pytest.mark.parametrize(
    ("logp", "entropy", "advantage", "silenced"),
    [
        (-1e-3, 1.5, 1.0, True),
        (0.0, 1.5, 1.0, False),
        (-1e-3, math.nextafter(2.0, 0.0), 1.0, True),
        (-1e-3, 2.0, 1.0, False),
        (-1e-3, 1.5, 5e-324, True),
        (-1e-3, 1.5, 0.0, False),
        (-1e-3, 1.5, -0.0, False),
        (-1e-3, 1.5, -1.0, False),
    ],
    ids=[
        "all hold",
        "p = tau_p",
        "H just below",
        "H = threshold",
        "A just above 0",
        "A = 0",
        "A = -0",
        "A < 0",
    ],
)
def test_all_three_inequalities_are_strict(logp, entropy, advantage, silenced, scope) -> None:
    # tau_p = 1 = exp(0), both exact.
    assert is_silenced(logp, entropy, advantage, tau_p=1.0, scope=scope) is silenced


def test_the_probability_is_compared_not_its_logarithm() -> None:
    tau_p = torch.exp(double([-6.25])).item()
    assert not is_silenced(-6.25, 1.5, 1.0, tau_p, "candidates")
    assert is_silenced(-6.25, 1.5, 1.0, math.nextafter(tau_p, 1.0), "candidates")


def test_high_entropy_ablation_is_strict() -> None:
    logps, mask = double([[-9.0] * 5]), torch.ones(1, 5, dtype=torch.bool)
    entropies = double([[1.0, 2.0, 3.0, 4.0, 5.0]])
    keep = silence_high_entropy(logps, entropies, double([1.0]), mask, tau_p=0.002, quantile=0.75)
    assert keep.tolist() == [[True, True, False, False, False]]  # the 25 % quantile is 2


def test_quadrants_are_strict_as_s2t_is() -> None:
    logps = double([[-1e-3, -1e-3, 0.0, 0.0, -1e-3]])
    entropies = double([[0.5, 1.0, 0.5, 1.0, 0.5]])
    mask = torch.tensor([[True, True, True, True, False]])
    assert token_quadrants(logps, entropies, mask, 1.0, 1.0).tolist() == [[0, 1, 2, 3, -1]]


# Shares -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_candidates", "share"),
    [
        (0, 0.0),
        (1, 0.0),
        (2, 0.50),
        (3, 0.67),
        (4, 0.75),
        (5, 0.60),
        (6, 0.67),
        (10, 0.70),
        (20, 0.75),
    ],
)
def test_share_of_candidates_silenced(num_candidates: int, share: float) -> None:
    # Two thirds of the response tokens are candidates; the others must not enter the threshold.
    size = max(num_candidates, 1)
    generator = torch.Generator().manual_seed(num_candidates)
    entropies = torch.stack([torch.randperm(size, generator=generator), 100 + torch.arange(size)])
    logps = double([[-9.0 if num_candidates else -1.0] * size, [-1.0] * size])
    mask = torch.ones(2, size, dtype=torch.bool)
    keep = silence_spurious(logps, entropies.double(), double([1.0, 1.0]), mask, quantile=0.75)
    num_silenced = (~keep).sum().item()
    assert round(num_silenced / size, 2) == share
    assert (
        entropies[0][~keep[0]] < num_silenced
    ).all()  # the lowest entropies, 0 to num_silenced - 1


@pytest.mark.parametrize(
    ("num_tokens", "num_kept"), [(1, 1), (4, 1), (5, 1), (6, 2), (10, 2), (11, 3)]
)
def test_20_entropy_rounds_up(num_tokens: int, num_kept: int) -> None:
    mask = torch.ones(1, num_tokens, dtype=torch.bool)
    keep = keep_high_entropy(torch.arange(num_tokens).double()[None], mask, fraction=0.2)
    assert keep.tolist() == [[False] * (num_tokens - num_kept) + [True] * num_kept]


def test_20_entropy_rounds_up_no_rounding_error() -> None:
    # 0.55 * 655380 is 360459.00000000006 in floating point; a mini-batch of the paper has millions of tokens.
    keep = keep_high_entropy(
        torch.zeros(1, 655_380), torch.ones(1, 655_380, dtype=torch.bool), fraction=0.55
    )
    assert keep.sum() == 360_459


def test_20_entropy_keeps_as_many_equal_tokens_of_every_response() -> None:
    mask = torch.ones(40, 50, dtype=torch.bool)  # long enough for an unstable sort to shuffle
    equal = torch.ones(40, 50, dtype=torch.float64)
    keep = keep_high_entropy(equal, mask, fraction=0.2)
    assert torch.equal(keep, (torch.arange(50) < 10).expand(40, 50))


def test_random_ablation_gives_every_candidate_the_same_chance(make_batch) -> None:
    args = selection_arguments(make_batch(0, num_groups=4, length=8))
    rare = args[3] & ~silence_candidates(*args, tau_p=0.002)
    num_rare, draws = rare.sum().item(), 400
    global_state = torch.get_rng_state()
    silenced = sum(
        (rare & ~silence_random(*args, tau_p=0.002, quantile=0.5, seed=seed)).double()
        for seed in range(draws)
    )
    assert torch.equal(torch.get_rng_state(), global_state)
    assert num_rare >= 4
    share = round(0.5 * num_rare) / num_rare
    # Five standard deviations of a binomial share: one false alarm in about a million.
    assert ((silenced[rare] / draws - share).abs() < 5 * math.sqrt(0.25 / draws)).all()


# Padding and order ------------------------------------------------------------------------------

DETERMINISTIC = sorted(set(SELECTIONS) - {"silence_random"})


def pad(batch, garbage: float):
    """The same mini-batch with two positions before, three behind and one empty sequence, full of garbage."""

    def change(value: Tensor) -> Tensor:
        fill = False if value.dtype == torch.bool else garbage
        columns = (2, 3, 0, 1) if value.dim() == 2 else (0, 1)
        return torch.nn.functional.pad(value, columns, value=fill)

    return batch.map(change)


@SEEDS
@pytest.mark.parametrize("garbage", [0.0, -1.0, -1e4, 1e4])
@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_padding_does_not_change_the_selection(make_batch, seed, garbage, name) -> None:
    batch = make_batch(seed)
    padded = pad(batch, garbage)
    keep = SELECTIONS[name](*selection_arguments(padded))
    assert not (keep & ~padded.mask).any()
    assert torch.equal(keep[:-1, 2:-3], SELECTIONS[name](*selection_arguments(batch)))


@SEEDS
@pytest.mark.parametrize("garbage", [0.0, -1.0, 1e4])
def test_padding_does_not_change_loss_and_gradient(make_batch, seed, garbage) -> None:
    batch = make_batch(seed)
    padded = pad(batch, garbage)
    for aggregate in (token_mean, sequence_mean):
        results = []
        for each in (batch, padded):
            logps = each.logps.clone().requires_grad_()
            values = clipped_surrogate(logps, each.old_logps, each.advantages, 0.2, 0.28)
            aggregate(values, each.mask).backward()
            results.append((aggregate(values, each.mask).detach(), logps.grad))
        (mean, gradient), (padded_mean, padded_gradient) = results
        # Zeros change the order in which a sum is blocked, hence its last digits.
        torch.testing.assert_close(padded_mean, mean, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(padded_gradient[:-1, 2:-3], gradient, rtol=1e-12, atol=0)
        assert (padded_gradient[~padded.mask] == 0).all()


@SEEDS
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_the_order_of_sequences_does_not_matter(make_batch, seed, name) -> None:
    # Entropies are distinct, so row-major order breaks no ties. Whom silence_random draws follows the order.
    batch = make_batch(seed)
    order = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
    permuted = batch.map(lambda value: value[order])
    keep = SELECTIONS[name](*selection_arguments(batch))
    permuted_keep = SELECTIONS[name](*selection_arguments(permuted))
    assert torch.equal(permuted_keep, keep[order])
    loss, gradient = loss_and_gradient(batch, keep)
    permuted_loss, permuted_gradient = loss_and_gradient(permuted, permuted_keep)
    # Another order of summation: the last digits of a sum of some hundred terms.
    torch.testing.assert_close(permuted_loss, loss, rtol=1e-12, atol=1e-15)
    assert torch.equal(permuted_gradient, gradient[order])


@SEEDS
@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_selections_have_no_gradient_and_no_side_effect(make_batch, seed, name) -> None:
    batch = make_batch(seed)
    before = batch.map(Tensor.clone)
    logps, entropies = batch.logps.requires_grad_(), batch.entropies.requires_grad_()
    keep = SELECTIONS[name](logps, entropies, batch.advantages, batch.mask)
    assert not keep.requires_grad
    for key, value in vars(before).items():
        assert torch.equal(getattr(batch, key), value)
    keep &= False
    assert torch.equal(batch.mask, before.mask)  # `keep` is not the mask itself
