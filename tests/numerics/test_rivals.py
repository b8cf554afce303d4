"""The functions of rivals against their formulas in plain double precision, token by token."""

from collections.abc import Callable
from math import exp, isfinite, log

import pytest
import torch
from torch import Tensor

from stapo.core.objective.advantages import ADVANTAGES
from stapo.core.objective.penalties import PENALTIES
from stapo.core.objective.selection import SELECTIONS, covariances
from stapo.core.objective.surrogates import SURROGATES
from stapo.core.objective.weightings import WEIGHTINGS

# Both sides compute in double and differ by the order of a few roundings of 1e-16 each.
DOUBLE = {"rtol": 1e-12, "atol": 1e-12}
LENGTHS = (7, 5, 6)
A = (0.8, -0.75, 0.0)
RATIOS = (0.2, 0.75, 0.95, 1.0, 1.1, 1.4, 9.0)


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs, old log-probs, advantages, mask: every ratio with every sign of A; nan after a response."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)
    ratios = torch.tensor(RATIOS, dtype=torch.double).log().repeat(3, 1)
    old = -3 - 2 * torch.rand(3, 7, generator=generator, dtype=torch.double)
    logps = (old + ratios).masked_fill(~mask, float("nan"))
    return logps, old, torch.tensor(A, dtype=torch.double), mask


def soft(ratio: float, a: float, p: float, old: float) -> float:
    t = 1.0 if a > 0 else 1.05
    gate = 1 / (1 + exp(-t * (ratio - 1)))
    return 4 * gate * (1 - gate) * ratio * a


def kept(ratio: float, a: float, p: float, old: float) -> float:
    if a < 0 and ratio < 0.8:
        return 0.75 * 0.8 * a
    return 1.28 * a if a > 0 and ratio > 1.28 else ratio * a


def within(ratio: float, a: float, p: float, old: float) -> float:
    beyond = (a > 0 and p - old > 0.15) or (a < 0 and p - old < -0.15)
    return 0.0 if beyond else ratio * a


GRADIENTS: dict[str, tuple[dict[str, float], Callable[[float, float, float, float], float]]] = {
    "unclipped": ({}, lambda ratio, a, p, old: ratio * a),
    "cispo": ({}, lambda ratio, a, p, old: min(ratio, 5.0) * a),
    "sapo": ({}, soft),
    "ce_gppo": ({"clip_low": 0.2, "clip_high": 0.28}, kept),
    "dppo": ({}, within),
}
"""Name -> arguments, and the derivative by the log-prob of a token."""


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_surrogate_has_the_gradient_of_its_formula_at_known_ratios(rows, name: str) -> None:
    logps, old, advantages, mask = rows
    if name == "dppo":  # Probabilities that can move by 0.15.
        old = torch.where(torch.arange(7) < 3, old * 0 + log(0.9), old * 0 + log(0.1))
        logps = (old + torch.tensor(RATIOS).double().log()).masked_fill(~mask, float("nan"))
    # These have tests of their own.
    assert {*GRADIENTS, "clipped", "gspo"} == {*SURROGATES}
    args, derivative = GRADIENTS[name]
    leaf = logps.clone().requires_grad_()
    values = SURROGATES[name](leaf, old, advantages, mask, **args)
    values.masked_fill(~mask, 0.0).sum().backward()
    expected = torch.zeros_like(old)
    for b, length in enumerate(LENGTHS):
        for t in range(length):
            p, before = logps[b, t].item(), old[b, t].item()
            expected[b, t] = derivative(exp(p - before), A[b], exp(p), exp(before))
    torch.testing.assert_close(leaf.grad, expected, **DOUBLE)


NO_ROOM = {"dppo": {"divergence": 0.0}}
NO_ROOM["ce_gppo"] = {"clip_low": 0.0, "clip_high": 0.0, "kept_high": 0.5}


@pytest.mark.parametrize("name", NO_ROOM)
def test_a_limit_of_zero_cuts_no_gradient_of_a_policy_that_has_not_moved(name: str) -> None:
    leaf, advantages = torch.full((2, 1), -1.0, requires_grad=True), torch.tensor([1.0, -1.0])
    mask = torch.ones(2, 1, dtype=torch.bool)
    SURROGATES[name](leaf, leaf.detach(), advantages, mask, **NO_ROOM[name]).sum().backward()
    assert torch.equal(leaf.grad[:, 0], advantages)


def test_a_ratio_that_underflows_keeps_the_gradient_of_clipped_tokens() -> None:
    leaf, advantages = torch.full((2, 1), -111.0, requires_grad=True), torch.tensor([-1.0, 1.0])
    given = leaf, leaf.detach() + 110, advantages, torch.ones(2, 1, dtype=torch.bool)
    SURROGATES["ce_gppo"](*given, clip_low=0.2, clip_high=0.28).sum().backward()
    assert leaf.grad[:, 0].tolist() == pytest.approx([-0.75 * 0.8, 0.0])


def test_a_ratio_of_a_sequence_is_the_geometric_mean_of_its_tokens(rows) -> None:
    logps, old, advantages, mask = rows
    leaf = logps.clone().requires_grad_()
    values = SURROGATES["gspo"](leaf, old, advantages, mask, clip_low=0.9, clip_high=9)
    values.masked_fill(~mask, 0.0).sum().backward()
    for b, length in enumerate(LENGTHS):
        gaps = [(logps[b, t] - old[b, t]).item() for t in range(length)]
        ratio = exp(sum(gaps) / length)
        assert values[b, 0].item() == pytest.approx(ratio * A[b])
        # `length` tokens have the value, each of whose ratios has 1 / length of the gradient.
        torch.testing.assert_close(
            leaf.grad[b, :length], leaf.new_full((length,), ratio * A[b]).detach(), **DOUBLE
        )
    narrow = SURROGATES["gspo"](logps, old, advantages, mask, clip_low=1e-3, clip_high=1e-3)
    assert narrow[0, 0].item() == pytest.approx(min(exp(sum(map(log, RATIOS)) / 7), 1.001) * A[0])


REWARDS = torch.tensor([1.0, 1, -1, -1, -1, 1, 1, 1, 1, -1, 1, 1, 1, 1, 1], dtype=torch.double)


def test_advantages_are_those_of_their_formulas() -> None:
    groups = REWARDS.view(3, 5)
    std = groups.std(dim=1, keepdim=True)
    # 3 of 5 right, at most 1 - 0.4: the baseline is -1 and only right answers move. 4 of 5: only wrong ones.
    baseline = torch.tensor([[-1.0], [1.0], [1.0]])
    expected = {
        "group": (groups - groups.mean(dim=1, keepdim=True)) / (std + 1e-6),
        "dr_grpo": groups - groups.mean(dim=1, keepdim=True),
        # 2 of 5 right: the mean is -0.2. 4 of 5: it is 0.6.
        "wapo": torch.tensor(
            [[1.2, 1.2, 0, 0, 0], [0.4, 0.4, 0.4, 0.4, 0], [0] * 5], dtype=torch.double
        ),
        "qae": (groups - baseline) / (std + 1e-6),
        "w_reinforce": torch.where(groups > 0, 0.1, -1.0).double(),
    }
    assert expected.keys() == ADVANTAGES.keys()
    for name, values in expected.items():
        found = ADVANTAGES[name](REWARDS, 5)
        torch.testing.assert_close(found, values.flatten(), **DOUBLE)
    assert not ADVANTAGES["qae"](REWARDS, 5)[10:].any()
    # Their std is near epsilon.
    close = torch.tensor([0.1, 0.1, 0.1, 0.1 + 1e-6], dtype=torch.double)
    expected = (close - close.mean()) / (close.std() + 1e-6)
    torch.testing.assert_close(ADVANTAGES["group"](close, 4), expected, rtol=1e-9, atol=1e-8)
    # The baseline is a reward; 0.07 x 100 is a rounding error above 7.
    for share, size, rank in ((0.4, 8, 3), (0.1, 5, 0), (0.07, 100, 6)):
        found = ADVANTAGES["qae"](torch.arange(size).double(), size, baseline_quantile=share)
        assert (found == 0).nonzero().tolist() == [[rank]]
    assert (ADVANTAGES["w_reinforce"](torch.zeros(2), 2) == -1).all()


def test_weights_are_those_of_their_formulas(rows) -> None:
    logps, _, advantages, mask = rows
    entropies = torch.full_like(logps, 0.25)
    found = WEIGHTINGS["advantage_reweighting"](logps, entropies, advantages, mask)
    expected = [0.2 * exp(value) + 0.8 for value in logps[0].tolist()]
    assert found[0].tolist() == pytest.approx(expected)
    assert (found[~mask] == 1).all()
    found = WEIGHTINGS["advantage_reweighting"](logps, entropies, advantages, mask, alpha=-0.2)
    expected = [1 + 0.2 * (1 - exp(value)) for value in logps[1].tolist()[: LENGTHS[1]]]
    assert found[1, : LENGTHS[1]].tolist() == pytest.approx(expected)
    amplify = WEIGHTINGS["stare"]
    found = amplify(logps, entropies, advantages, mask, surprising_share=0.3)
    rarest = sorted(logps[0].tolist())
    amplified = [value in rarest[:2] for value in logps[0].tolist()]
    assert [value == 1.1 for value in found[0].tolist()] == amplified
    assert (found[1:] == 1).all()
    # Whatever the size of A; at the threshold a token is not below it, and at the gate nothing is amplified.
    exact = amplify(logps, entropies, advantages / 100, mask, 1 / (len(rarest) - 1))
    assert (exact == 1.1).sum() == 1
    assert (amplify(logps, entropies, advantages, mask, 0.3, entropy_gate=0.25) == 1).all()


def test_covariances_and_what_they_choose(rows) -> None:
    logps, _, advantages, mask = rows
    tokens = [(b, t) for b, length in enumerate(LENGTHS) for t in range(length)]
    mean_p = sum(logps[b, t].item() for b, t in tokens) / len(tokens)
    mean_a = sum(A[b] for b, _ in tokens) / len(tokens)
    expected = {(b, t): (A[b] - mean_a) * (logps[b, t].item() - mean_p) for b, t in tokens}
    found = covariances(logps, advantages, mask)
    for (b, t), value in expected.items():
        assert found[b, t].item() == pytest.approx(value, abs=2**-11)  # its resolution
    coefficients = PENALTIES["kl_cov"].coefficients(
        logps, torch.zeros_like(logps), advantages, mask, covariant_share=0.2
    )
    assert coefficients.dtype == logps.dtype
    few = PENALTIES["kl_cov"].coefficients(logps, logps, advantages, mask)
    assert int(few.sum()) == 1  # The least is one token.
    leaf = logps.clone().requires_grad_()
    PENALTIES["kl_cov"].quantity(leaf, leaf, logps).nansum().backward()
    assert not leaf.grad.any()  # On policy; but +-1 where rounding tells the two apart.
    highest = sorted(tokens, key=lambda at: -expected[at])[:3]  # floor(0.2 x 18)
    assert sorted(map(tuple, coefficients.nonzero().tolist())) == sorted(highest)
    dropped = mask & ~SELECTIONS["clip_cov"](
        logps, torch.zeros_like(logps), advantages, mask, covariance_low=0.5, dropped_share=0.12
    )
    assert int(dropped.sum()) == 2
    assert all(0.5 < expected[b, t] < 5 for b, t in dropped.nonzero().tolist())


def test_clip_b_drops_what_is_far_below_the_mean_score_in_wrong_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(9) < torch.tensor([9, 6, 8, 7]).unsqueeze(1)
    logps, entropies = -3 * torch.rand((2, 4, 9), generator=generator, dtype=torch.double)
    logps, entropies = logps.masked_fill(~mask, float("nan")), -entropies
    advantages = torch.tensor([0.8, -0.75, 0.0, -0.1], dtype=torch.double)
    scores = {
        (b, t): exp(logps[b, t].item()) * (entropies[b, t].item() + logps[b, t].item())
        for b, t in mask.nonzero().tolist()
    }
    mean = sum(scores.values()) / len(scores)
    deviation = (sum((score - mean) ** 2 for score in scores.values()) / len(scores)) ** 0.5
    for deviations in (0.0, 0.5):
        found = mask & ~SELECTIONS["clip_b"](logps, entropies, advantages, mask, deviations)
        lowest = mean - deviations * deviation
        # No score is within its resolution, 2^-10, of the threshold.
        assert min(abs(score - lowest) for score in scores.values()) > 2**-10
        below = [place for place, score in scores.items() if score < lowest]
        assert {b for b, _ in below} == {0, 1, 2, 3}
        assert [*map(tuple, found.nonzero().tolist())] == [at for at in below if at[0] in (1, 3)]
    equal = torch.full_like(logps, -1.0)
    for tokens in (mask, torch.zeros_like(mask)):  # Equal scores; no tokens.
        assert torch.equal(SELECTIONS["clip_b"](equal, -equal, advantages, tokens, 0.0), tokens)


def test_controls_silence_as_many_tokens_as_s2t_and_rare_ones_of_wrong_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    logps = torch.rand((40, 30), generator=generator).mul(0.01).log()
    entropies = torch.rand((40, 30), generator=generator)
    mask = torch.rand((40, 30), generator=generator) < 0.9
    advantages = torch.randn(40, generator=generator)
    advantages[:10] = 0.0
    tables, positive = (logps, entropies, advantages, mask), (advantages > 0).unsqueeze(1)
    s2t = mask & ~SELECTIONS["silence_spurious"](*tables)
    matched = [mask & ~SELECTIONS["silence_matched"](*tables, seed=seed) for seed in (1, 1, 2)]
    assert all(int(one.sum()) == int(s2t.sum()) > 50 for one in matched)
    assert not (matched[0] & ~positive).any()
    assert (matched[0] & (logps.exp() > 0.002)).any()  # Not rare ones alone.
    assert torch.equal(matched[0], matched[1])
    assert not torch.equal(matched[0], matched[2])
    mirror = mask & ~SELECTIONS["silence_spurious_negative"](*tables)
    assert mirror.any()
    assert not (mirror & positive).any()
    assert (logps[mirror].exp() < 0.002).all()
    wide = {"tau_p": 0.005, "quantile": 0.5, "scope": "all"}
    found = [SELECTIONS[f"silence_{one}"](*tables, **wide).sum() for one in ("matched", "spurious")]
    assert found[0] == found[1]
    opposite = SELECTIONS["silence_spurious"](logps, entropies, -advantages, mask, **wide)
    assert torch.equal(SELECTIONS["silence_spurious_negative"](*tables, **wide), opposite)


def test_s2t_in_some_updates_is_s2t_in_these_and_nothing_in_others(rows) -> None:
    logps, _, advantages, mask = rows
    tables, rare = (logps, mask.double(), advantages, mask), {"tau_p": 0.5, "scope": "all"}
    tables[1][0] = torch.arange(7)
    s2t = SELECTIONS["silence_spurious"](*tables, **rare)
    assert not s2t.equal(mask)
    for step in range(1, 6):
        among = {"first_update": 2, "last_update": 4, "step": step}
        keep = SELECTIONS["silence_in_updates"](*tables, **rare, **among)
        assert keep.equal(s2t if step in (2, 3, 4) else mask)


def test_only_unlikely_tokens_of_wrong_answers_are_held_at_the_proxy(rows) -> None:
    logps, old, advantages, mask = rows
    proxy = (old + 0.1).masked_fill(torch.arange(7) == 1, float("-inf"))
    penalty = PENALTIES["lp_reg"]
    found = penalty.coefficients(
        logps, torch.zeros_like(logps), advantages, mask, proxy=proxy, unlikely_share=0.5
    )
    values = sorted(logps[mask].tolist())
    middle = (values[8] + values[9]) / 2
    expected = [
        [mask[1, t].item() and t != 1 and logps[1, t].item() < min(middle, proxy[1, t].item())]
        for t in range(7)
    ]
    assert [[bool(one)] for one in found[1].tolist()] == expected
    assert any(found[1].tolist())
    assert not found[[0, 2]].any()
    assert found.dtype == logps.dtype
    # At the threshold a token is not below it, and one that the proxy makes as likely is not held.
    lowest, where = min((logps[1, t].item(), t) for t in range(LENGTHS[1]) if t != 1)
    cases = (0.5, proxy, 1), (0.5, logps, 0), (values.index(lowest) / 17, proxy, 0)
    for share, other, held in cases:
        given = {"proxy": other, "unlikely_share": share}
        assert penalty.coefficients(logps, logps, advantages, mask, **given)[1, where] == held
    leaf = logps.clone().requires_grad_()
    quantities = penalty.quantity(leaf, leaf, proxy).masked_fill(~mask, 0.0)
    quantities.sum().backward()
    assert not quantities[:, 1].any()  # The proxy does not have it.
    for t in range(LENGTHS[1]):
        gap = (proxy - logps)[1, t].item()
        expected_gradient = 1 - exp(gap) if isfinite(gap) else 0.0
        assert leaf.grad[1, t].item() == pytest.approx(expected_gradient)


def test_the_entropy_bonus_adapts_by_steps_within_its_limits() -> None:
    penalty, state = PENALTIES["adaptive_entropy_bonus"], dict(coefficient=0.0)
    entropies = [0.1] * 60 + [0.3] * 10
    for entropy in entropies:
        state = penalty.following(state, entropy)
    assert state["coefficient"] == pytest.approx(5e-3 - 10e-4)
    assert penalty.following({"coefficient": 1e-3}, 0.2) == {"coefficient": pytest.approx(9e-4)}
    assert penalty.following({"coefficient": 0.0}, 0.3) == {"coefficient": 0.0}
    mask = torch.tensor([[True, True, False]])
    table, advantages = torch.full((1, 3), -0.5, dtype=torch.double), torch.ones(1)
    fixed = PENALTIES["entropy_bonus"].coefficients(table, table, advantages, mask)
    assert torch.equal(fixed, torch.tensor([[1e-3, 1e-3, 0.0]], dtype=torch.double))
    for entropy, value in ((0.1, 0.1), (0.25, 0.1), (0.3, 0.0)):  # At the target, too.
        found = penalty.coefficients(table, 0 * table + entropy, advantages, mask, 0.1, 0.25)
        assert torch.equal(found, value * mask.double())
