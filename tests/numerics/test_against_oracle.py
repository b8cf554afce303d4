"""The library against plain double-precision loops, function by function and method by method."""

import math
from dataclasses import dataclass, replace

import oracle
import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from stapo.objective import (
    SELECTIONS,
    clipped_surrogate,
    gradient_norm_bounds,
    group_advantages,
    group_token_mean,
    keep_high_entropy,
    kl_k3,
    logit_gradient_norm_sq,
    sequence_mean,
    silence_candidates,
    silence_high_entropy,
    silence_random,
    silence_spurious,
    token_mean,
    token_quadrants,
)

# Both sides compute in double and differ by the order of a few roundings of 1e-16 each.
DOUBLE = {"rtol": 1e-12, "atol": 1e-12}
# Mini-batches are small from the start; shrinking them took minutes per broken function.
EXAMPLES = settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)


def double(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# Hypothesis -------------------------------------------------------------------------------------

# Entropies on a coarse grid are often equal, and thresholds at q = k/4 are computed without any
# rounding, so that `<` has one right answer.
GRID = st.integers(0, 12).map(lambda eighths: eighths / 8)
# Half of the log-probabilities are rare at 0.002; 0 is certainty, -800 a probability that is 0 in double.
LOGP = st.one_of(
    st.floats(-12.0, -6.5), st.floats(-6.0, -0.001), st.sampled_from([0.0, -50.0, -800.0])
)
ADVANTAGE = st.one_of(st.just(0.0), st.floats(-3.0, 3.0).filter(lambda a: abs(a) > 1e-3))
RATIO = st.one_of(st.floats(-1.0, 1.0), st.sampled_from([0.0, 5.0, -5.0, -300.0, 300.0]))


@dataclass
class Rows:
    """A mini-batch as lists."""

    logps: list
    old: list
    entropies: list
    advantages: list
    mask: list

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mask = torch.tensor(self.mask)
        return double(self.logps), double(self.entropies), double(self.advantages), mask


@st.composite
def mini_batches(draw: st.DrawFn) -> Rows:
    size, length = draw(st.integers(1, 5)), draw(st.integers(1, 6))

    def matrix(element: st.SearchStrategy) -> list:
        row = st.lists(element, min_size=length, max_size=length)
        return draw(st.lists(row, min_size=size, max_size=size))

    logps = matrix(LOGP)
    ratios = matrix(RATIO)
    old = [[p - r for p, r in zip(*rows, strict=True)] for rows in zip(logps, ratios, strict=True)]
    advantages = draw(st.lists(ADVANTAGE, min_size=size, max_size=size))
    return Rows(logps, old, matrix(GRID), advantages, matrix(st.booleans()))


# One candidate; none; nothing but padding; all candidates equally uncertain.
ONE = Rows([[-7.0, -1.0]], [[-7.0, -1.0]], [[0.5, 1.0]], [1.0], [[True, True]])
NONE = replace(ONE, advantages=[-1.0])
EMPTY = replace(ONE, mask=[[False, False]])
TIED = Rows([[-7.0] * 4], [[-7.0] * 4], [[0.5] * 4], [1.0], [[True] * 4])


def edge_cases(test):
    for case in (ONE, NONE, EMPTY, TIED):
        test = example(rows=case)(test)
    return test


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
@pytest.mark.parametrize("scope", ["candidates", "all"])
@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_silence_spurious(rows: Rows, quantile: float, scope: str) -> None:
    keep = silence_spurious(*rows.tensors(), tau_p=0.002, quantile=quantile, scope=scope)
    expected = oracle.silence_spurious(
        rows.logps, rows.entropies, rows.advantages, rows.mask, 0.002, quantile, scope
    )
    assert keep.dtype == torch.bool
    assert keep.tolist() == expected


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("scope", ["candidates", "all"])
def test_silence_high_entropy(rows: Rows, quantile: float, scope: str) -> None:
    keep = silence_high_entropy(*rows.tensors(), tau_p=0.002, quantile=quantile, scope=scope)
    expected = oracle.silence_high_entropy(
        rows.logps, rows.entropies, rows.advantages, rows.mask, 0.002, quantile, scope
    )
    assert keep.tolist() == expected


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
def test_silence_candidates(rows: Rows) -> None:
    keep = silence_candidates(*rows.tensors(), tau_p=0.002)
    assert keep.tolist() == oracle.silence_candidates(rows.logps, rows.advantages, rows.mask, 0.002)


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_silence_random_takes_its_share_of_the_candidates(rows: Rows, quantile: float) -> None:
    args = {"tau_p": 0.002, "quantile": quantile, "seed": 3}
    keep = silence_random(*rows.tensors(), **args)
    silenced = (torch.tensor(rows.mask) & ~keep).nonzero().tolist()
    rare = oracle.candidates(rows.logps, rows.advantages, rows.mask, 0.002)
    assert not (keep & ~torch.tensor(rows.mask)).any()
    assert {tuple(at) for at in silenced} <= set(rare)
    assert len(silenced) == oracle.num_silenced_at_random(
        rows.logps, rows.advantages, rows.mask, 0.002, quantile
    )
    assert torch.equal(keep, silence_random(*rows.tensors(), **args))


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.2, 0.5, 1.0])
def test_keep_high_entropy(rows: Rows, fraction: float) -> None:
    _, entropies, _, mask = rows.tensors()
    keep = keep_high_entropy(entropies, mask, fraction=fraction)
    assert keep.dtype == torch.bool
    assert keep.tolist() == oracle.keep_high_entropy(rows.entropies, rows.mask, fraction)


@EXAMPLES
@given(rows=mini_batches(), tau_h=GRID)
def test_token_quadrants(rows: Rows, tau_h: float) -> None:
    logps, entropies, _, mask = rows.tensors()
    quadrants = token_quadrants(logps, entropies, mask, 0.002, tau_h)
    assert quadrants.tolist() == oracle.token_quadrants(
        rows.logps, rows.entropies, rows.mask, 0.002, tau_h
    )


@pytest.mark.parametrize("dual_clip", [None, 3.0, 10.0])
@EXAMPLES
@given(rows=mini_batches())
def test_clipped_surrogate(rows: Rows, dual_clip: float | None) -> None:
    logps, _, advantages, _ = rows.tensors()
    values = clipped_surrogate(logps, double(rows.old), advantages, 0.2, 0.28, dual_clip)
    expected = oracle.clipped_surrogate(rows.logps, rows.old, rows.advantages, 0.2, 0.28, dual_clip)
    # Relative only: at a log-ratio of 300 the value is 1e130, at -300 it is 1e-130.
    torch.testing.assert_close(values, double(expected), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dual_clip", [None, 3.0])
@EXAMPLES
@given(rows=mini_batches())
def test_clipped_surrogate_gradient(rows: Rows, dual_clip: float | None) -> None:
    logps, _, advantages, _ = rows.tensors()
    logps.requires_grad_()
    clipped_surrogate(logps, double(rows.old), advantages, 0.2, 0.28, dual_clip).sum().backward()
    expected = oracle.surrogate_weights(rows.logps, rows.old, rows.advantages, 0.2, 0.28, dual_clip)
    torch.testing.assert_close(logps.grad, double(expected), rtol=1e-12, atol=0.0)


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
def test_aggregation(rows: Rows) -> None:
    values, mask = double(rows.entropies), torch.tensor(rows.mask)
    expected = oracle.token_mean(rows.entropies, rows.mask)
    torch.testing.assert_close(token_mean(values, mask), double(expected), **DOUBLE)
    for group_size in range(1, len(mask) + 1):
        if len(mask) % group_size == 0:
            found = group_token_mean(values, mask, group_size)
            grouped = oracle.group_token_mean(rows.entropies, rows.mask, group_size)
            torch.testing.assert_close(found, double(grouped), **DOUBLE)
    expected = oracle.sequence_mean(rows.entropies, rows.mask)
    torch.testing.assert_close(sequence_mean(values, mask), double(expected), **DOUBLE)


@EXAMPLES
@given(rows=mini_batches())
def test_aggregation_gradient(rows: Rows) -> None:
    mask = torch.tensor(rows.mask)
    cases = [
        (token_mean, oracle.token_mean_weights),
        (sequence_mean, oracle.sequence_mean_weights),
    ]
    for aggregate, weights in cases:
        values = double(rows.entropies).requires_grad_()
        aggregate(values, mask).backward()
        torch.testing.assert_close(values.grad, double(weights(rows.mask)), **DOUBLE)


@EXAMPLES
@given(
    groups=st.lists(
        st.lists(
            st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.1]), st.floats(-5, 5)),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_group_advantages(groups: list[list[float]]) -> None:
    rewards = [reward for group in groups for reward in group]
    advantages = group_advantages(double(rewards), 4)
    expected = oracle.group_advantages(rewards, 4)
    # Rewards up to 5 differ from their mean with an error of 1e-15, which a tiny std (down to eps)
    # magnifies by 1e6.
    torch.testing.assert_close(advantages, double(expected), rtol=1e-9, atol=1e-8)


# Random mini-batches ----------------------------------------------------------------------------

SEEDS = pytest.mark.parametrize("seed", range(5))


@SEEDS
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("keep_all", {}, lambda p, h, a, m: oracle.keep_all(m)),
        ("silence_spurious", {}, oracle.silence_spurious),
        (
            "silence_spurious",
            {"quantile": 0.8, "scope": "all"},
            lambda p, h, a, m: oracle.silence_spurious(p, h, a, m, 0.002, 0.8, "all"),
        ),
        (
            "silence_spurious",
            {"tau_p": 0.2, "quantile": 0.3},
            lambda p, h, a, m: oracle.silence_spurious(p, h, a, m, 0.2, 0.3),
        ),
        ("keep_high_entropy", {}, lambda p, h, a, m: oracle.keep_high_entropy(h, m)),
        (
            "keep_high_entropy",
            {"fraction": 0.55},
            lambda p, h, a, m: oracle.keep_high_entropy(h, m, 0.55),
        ),
        ("silence_high_entropy", {}, oracle.silence_high_entropy),
        ("silence_candidates", {}, lambda p, h, a, m: oracle.silence_candidates(p, a, m)),
    ],
    ids=[
        "all",
        "s2t",
        "s2t-v2",
        "s2t-0.2-0.3",
        "20-entropy",
        "55-entropy",
        "high-entropy",
        "full-mask",
    ],
)
def test_selections_by_name(make_batch, seed: int, name: str, args: dict, expected) -> None:
    names = ("logps", "entropies", "advantages", "mask")
    batch = make_batch(seed)
    keep = SELECTIONS[name](batch.logps, batch.entropies, batch.advantages, batch.mask, **args)
    assert keep.tolist() == expected(*batch.lists(*names))


@SEEDS
def test_silence_random_has_the_same_defaults(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    lists = batch.lists("logps", "advantages", "mask")
    keep = silence_random(batch.logps, batch.entropies, batch.advantages, batch.mask)
    silenced = {tuple(at) for at in (batch.mask & ~keep).nonzero().tolist()}
    assert silenced <= set(oracle.candidates(*lists, 0.002))
    assert len(silenced) == oracle.num_silenced_at_random(*lists)


def test_selections_are_all_there(make_batch) -> None:
    assert set(SELECTIONS) >= {
        "keep_all",
        "silence_spurious",
        "keep_high_entropy",
        "silence_high_entropy",
        "silence_random",
        "silence_candidates",
    }
    batch = make_batch(0)
    args = (batch.logps, batch.entropies, batch.advantages, batch.mask)
    expected = silence_random(*args, tau_p=0.002, quantile=0.75, seed=3)
    assert torch.equal(
        SELECTIONS["silence_random"](*args, quantile=0.75, seed=3, tau_p=0.002), expected
    )


@SEEDS
@pytest.mark.parametrize("method", ["grpo", "grpo-kl", "20-entropy", "justrl", "stapo", "stapo-v2"])
def test_loss_and_gradient_of_whole_methods(make_batch, seed: int, method: str) -> None:
    batch = make_batch(seed)
    lists = batch.lists("logps", "old_logps", "entropies", "advantages", "mask")
    ref, beta = (batch.ref_logps, 0.04) if method == "grpo-kl" else (None, 0.0)
    kl = (ref.tolist() if ref is not None else None, beta)
    method = method.removesuffix("-kl")

    logps = batch.logps.clone().requires_grad_()
    loss = method_loss(method, batch, logps, ref, beta)
    loss.backward()
    torch.testing.assert_close(loss, double(oracle.method_loss(method, *lists, *kl)), **DOUBLE)
    gradient = double(oracle.method_gradient(method, *lists, *kl))
    # Entries are about 1e-3; 1e-15 is the rounding of double at that size, doubled for the sum of two terms.
    torch.testing.assert_close(logps.grad, gradient, rtol=1e-12, atol=1e-15)


def method_loss(method: str, batch, logps: Tensor, ref: Tensor | None, beta: float) -> Tensor:
    """The same methods out of the library's functions."""
    high = 0.2 if method == "grpo" else 0.28
    values = clipped_surrogate(logps, batch.old_logps, batch.advantages, 0.2, high)
    if method == "grpo":
        kl = beta * kl_k3(logps, ref) if ref is not None else 0.0
        return -sequence_mean(values - kl, batch.mask)
    name, args = {
        "20-entropy": ("keep_high_entropy", {"fraction": 0.2}),
        "justrl": ("keep_all", {}),
        "stapo": ("silence_spurious", {"tau_p": 0.002, "quantile": 0.75}),
        "stapo-v2": ("silence_spurious", {"tau_p": 0.002, "quantile": 0.8, "scope": "all"}),
    }[method]
    keep = SELECTIONS[name](logps.detach(), batch.entropies, batch.advantages, batch.mask, **args)
    return -token_mean(values, keep)


@SEEDS
def test_kl_k3(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    values = kl_k3(batch.logps, batch.ref_logps)
    expected = oracle.kl_k3(*batch.lists("logps", "ref_logps"))
    torch.testing.assert_close(values, double(expected), **DOUBLE)
    assert (values >= 0).all()


@SEEDS
def test_diagnostics(make_batch, seed: int) -> None:
    batch = make_batch(seed)
    weights, collision = batch.old_logps, torch.exp(batch.ref_logps)
    norms = logit_gradient_norm_sq(weights, batch.logps, collision)
    lower, upper = gradient_norm_bounds(weights, batch.logps, batch.entropies, 151_936)
    for b in range(batch.logps.shape[0]):
        for t in range(batch.logps.shape[1]):
            w, p = weights[b, t].item(), batch.logps[b, t].item()
            norm = oracle.logit_gradient_norm_sq(w, p, collision[b, t].item())
            bounds = oracle.gradient_norm_bounds(w, p, batch.entropies[b, t].item(), 151_936)
            got = norms[b, t].item(), lower[b, t].item(), upper[b, t].item()
            # 1e-13 of the terms' own size (w^2 up to 200), since 1 - 2p + sum may cancel.
            assert got == pytest.approx((norm, *bounds), rel=1e-12, abs=1e-13 * (1 + w**2))


def test_single_precision_selects_the_same_tokens(make_batch) -> None:
    batch = make_batch(0, num_groups=16, dtype=torch.float32)
    lists = batch.lists("logps", "entropies", "advantages", "mask")
    args = (batch.logps, batch.entropies, batch.advantages, batch.mask)
    assert silence_spurious(*args).tolist() == oracle.silence_spurious(*lists)
    assert keep_high_entropy(args[1], args[3]).tolist() == oracle.keep_high_entropy(
        lists[1], lists[3]
    )


# Extremes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("log_ratio", [800.0, -800.0])
@pytest.mark.parametrize("advantage", [1.5, 0.0, -1.5])
def test_ratios_beyond_the_range_of_floats(dtype, log_ratio: float, advantage: float) -> None:
    # exp(800) is infinite: the clip must hold, and no inf * 0 = nan may reach values or gradients.
    logps = torch.tensor([[0.0 if log_ratio > 0 else log_ratio]], dtype=dtype, requires_grad=True)
    old = logps.detach() - log_ratio
    values = clipped_surrogate(
        logps, old, torch.tensor([advantage], dtype=dtype), 0.2, 0.28, dual_clip=10.0
    )
    values.sum().backward()
    old_rows = old.tolist()
    expected = oracle.surrogate_value(logps.item(), old_rows[0][0], advantage, 0.2, 0.28, 10.0)
    slope = oracle.surrogate_weight(logps.item(), old_rows[0][0], advantage, 0.2, 0.28, 10.0)
    assert values.item() == pytest.approx(expected, rel=1e-6)
    assert logps.grad.item() == slope == 0.0


def test_probabilities_of_exactly_zero_and_one() -> None:
    logps = double([[-math.inf, -800.0, 0.0]])
    entropies, advantages = double([[0.0, 1.0, 0.5]]), double([1.0])
    mask = torch.ones(1, 3, dtype=torch.bool)
    keep = silence_spurious(logps, entropies, advantages, mask, tau_p=0.002, quantile=0.75)
    assert keep.tolist() == [[False, True, True]]
    assert silence_candidates(logps, entropies, advantages, mask, tau_p=0.002).tolist() == [
        [False, False, True]
    ]


@pytest.mark.parametrize("scope", ["candidates", "all"])
def test_more_tokens_than_torch_quantile_takes(scope: str) -> None:
    # torch.quantile stops at 2^24 elements (pytorch#64947). With n = 2^24 + 1 entropies 0, 1, 2 ...
    # the threshold is 0.75 * 2^24.
    n = 2**24 + 1
    entropies = torch.arange(n, dtype=torch.float64).flip(0)[None]
    keep = silence_spurious(
        torch.full((1, 1), -9.0, dtype=torch.float64).expand(1, n),
        entropies,
        torch.ones(1, dtype=torch.float64),
        torch.ones(1, 1, dtype=torch.bool).expand(1, n),
        scope=scope,
    )
    assert torch.equal(keep, entropies >= 0.75 * 2**24)


# Wrong input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SELECTIONS))
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("mask", torch.ones(2, 3)),
        ("mask", torch.ones(2, 3, dtype=torch.long)),
        ("mask|logps|entropies", torch.ones(3, 2, dtype=torch.bool)),
        ("entropies", torch.zeros(2, 4)),
        ("logps", torch.zeros(2, 1)),
        ("advantages", torch.zeros(3)),
        ("advantages", torch.zeros(2, 3)),
    ],
    ids=[
        "float mask",
        "int mask",
        "mask shape",
        "entropies",
        "logps",
        "advantages",
        "(B, T) advantages",
    ],
)
def test_selections_name_the_wrong_argument(name: str, argument: str, value: Tensor) -> None:
    args = {
        "logps": torch.zeros(2, 3),
        "entropies": torch.zeros(2, 3),
        "advantages": torch.zeros(2),
        "mask": torch.ones(2, 3, dtype=torch.bool),
    }
    args[argument.split("|")[0]] = value
    # A mask of another shape than two tensors that agree: naming either side is right.
    with pytest.raises(ValueError, match=argument):
        SELECTIONS[name](args["logps"], args["entropies"], args["advantages"], args["mask"])


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("old_logps", lambda x: clipped_surrogate(x, x[:1], x[:, 0], 0.2, 0.28)),
        ("advantages", lambda x: clipped_surrogate(x, x, x, 0.2, 0.28)),
        ("keep", lambda x: token_mean(x, torch.ones(2, 3))),
        ("keep|values", lambda x: token_mean(x, torch.ones(2, 2, dtype=torch.bool))),
        ("mask", lambda x: sequence_mean(x, torch.ones(2, 3))),
        ("mask|values", lambda x: sequence_mean(x, torch.ones(2, 2, dtype=torch.bool))),
        ("ref_logps", lambda x: kl_k3(x, x[:1])),
        ("mask", lambda x: keep_high_entropy(x, torch.ones(2, 3))),
        ("mask", lambda x: token_quadrants(x, x, torch.ones(2, 3), 0.002, 1.0)),
        ("rewards|group_size", lambda x: group_advantages(torch.zeros(7), 4)),
    ],
    ids=[
        "surrogate old",
        "surrogate advantages",
        "token_mean float",
        "token_mean shape",
        "sequence_mean float",
        "sequence_mean shape",
        "kl",
        "keep_high_entropy",
        "quadrants",
        "groups",
    ],
)
def test_other_functions_name_the_wrong_argument(argument: str, call) -> None:
    with pytest.raises(ValueError, match=argument):
        call(torch.zeros(2, 3))
