"""The library against plain double-precision loops, function by function."""

from dataclasses import dataclass, replace
from math import nextafter
from typing import Any

import oracle
import pytest
import torch
from hypothesis import Phase, example, given, settings, strategies as st
from torch import Tensor

from stapo.core.objective import (
    SELECTIONS,
    clipped_surrogate,
    silence_random,
    silence_spurious,
    token_mean,
    token_weights,
)

# Mini-batches are small from the start; shrinking them took minutes per broken function.
EXAMPLES = settings(
    deadline=None, max_examples=150, derandomize=True, phases=(Phase.explicit, Phase.generate)
)

# Entropies on a coarse grid are often equal, and thresholds at q = k/4 are computed without any
# rounding, so that `<` has one right answer.
GRID = st.integers(0, 12).map(lambda eighths: eighths / 8)
# Half of the log-probabilities are rare at 0.002; 0 is certainty, -800 a probability that is 0 in double.
LOGP = st.one_of(
    st.floats(-12.0, -6.5), st.floats(-6.0, -0.001), st.sampled_from([0.0, -50.0, -800.0])
)
ADVANTAGE = st.one_of(st.just(0.0), st.floats(-3.0, 3.0).filter(lambda a: abs(a) > 1e-3))
RATIO = st.one_of(st.floats(-1.0, 1.0), st.sampled_from([0.0, 5.0, -5.0, -300.0, 300.0]))
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


def double(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@dataclass
class Rows:
    """A mini-batch as lists."""

    logps: list
    old: list
    entropies: list
    advantages: list
    mask: list

    def lists(self) -> tuple[list, list, list, list]:
        return self.logps, self.entropies, self.advantages, self.mask

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        logps, entropies, advantages = map(double, self.lists()[:3])
        return logps, entropies, advantages, torch.tensor(self.mask)


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


# One candidate; none; nothing but padding; all candidates equally uncertain; one hardly below the others;
# one of hardly any advantage.
ONE = Rows([[-7.0, -1.0]], [[-7.0, -1.0]], [[0.5, 1.0]], [1.0], [[True, True]])
NONE = replace(ONE, advantages=[-1.0])
EMPTY = replace(ONE, mask=[[False, False]])
TIED = Rows([[-7.0] * 4], [[-7.0] * 4], [[0.5] * 4], [1.0], [[True] * 4])
BELOW = replace(TIED, entropies=[[nextafter(0.5, 0.0), 0.5, 0.5, 0.5]])
HARDLY = replace(BELOW, advantages=[5e-324])


def edge_cases(test):
    for case in (ONE, NONE, EMPTY, TIED, BELOW, HARDLY):
        test = example(rows=case)(test)
    return test


# Without arguments, the defaults of both sides.
SELECTED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SELECTIONS if name in oracle.SELECTIONS),
    *(
        (name, {"tau_p": 0.002, "quantile": level, "scope": scope})
        for name in ("silence_spurious", "silence_high_entropy")
        for level in LEVELS
        for scope in ("candidates", "all")
    ),
    ("silence_candidates", {"tau_p": 0.2}),
    *(
        (name, {"tau_p": 0.2, "scope": scope, "target_entropy": target, "entropy_width": width})
        for name in ("silence_above_entropy", "silence_towards_entropy")
        for scope in ("candidates", "all")
        for target, width in ((0.3, 0.05), (0.8, 1.0), (1.2, 1.0))
    ),
    *(("keep_high_entropy", {"fraction": share}) for share in (0.0, 0.1, 0.5, 1.0)),
]
DRAWN: list[dict[str, float]] = [{}, *({"tau_p": 0.2, "quantile": level} for level in LEVELS)]


# All cases of one mini-batch: to draw it takes most of the time.
@edge_cases
@EXAMPLES
@given(rows=mini_batches())
def test_selections(rows: Rows) -> None:
    tables, lists = rows.tensors(), rows.lists()
    for name, args in SELECTED:
        keep = SELECTIONS[name](*tables, **args)
        assert keep.dtype == torch.bool
        assert keep.tolist() == oracle.SELECTIONS[name](*lists, **args), (name, args)


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
def test_silence_random_takes_its_share_of_the_candidates(rows: Rows) -> None:
    tables, mask = rows.tensors(), torch.tensor(rows.mask)
    for args in DRAWN:
        keep = silence_random(*tables, **args, seed=3)
        silenced = (mask & ~keep).nonzero().tolist()
        rare = oracle.candidates(rows.logps, rows.advantages, rows.mask, args.get("tau_p", 0.002))
        assert not (keep & ~mask).any()
        assert {tuple(at) for at in silenced} <= set(rare)
        assert len(silenced) == round(args.get("quantile", 0.75) * len(rare))
        assert torch.equal(keep, SELECTIONS["silence_random"](*tables, **args, seed=3))


@EXAMPLES
@given(rows=mini_batches())
def test_clipped_surrogate_and_its_gradient(rows: Rows) -> None:
    logps, _, advantages, _ = rows.tensors()
    for dual_clip in (None, 3.0, 10.0):
        leaf = logps.clone().requires_grad_()
        values = clipped_surrogate(leaf, double(rows.old), advantages, 0.2, 0.28, dual_clip)
        values.sum().backward()
        args = rows.logps, rows.old, rows.advantages, 0.2, 0.28, dual_clip
        # Relative only: at a log-ratio of 300 the value is 1e130, at -300 it is 1e-130.
        for found, of_oracle in (
            (values.detach(), oracle.clipped_surrogate),
            (leaf.grad, oracle.surrogate_weights),
        ):
            torch.testing.assert_close(found, double(of_oracle(*args)), rtol=1e-12, atol=0.0)


@edge_cases
@EXAMPLES
@given(rows=mini_batches())
def test_aggregation(rows: Rows) -> None:
    mask, values = torch.tensor(rows.mask), double(rows.entropies)

    def by_weights(name: Any, *group_size: int) -> float:
        weights = token_weights(mask, name, *group_size, dtype=torch.float64)
        return (values * weights).sum().item()

    args = rows.entropies, rows.mask
    assert token_mean(values, mask).item() == pytest.approx(oracle.token_mean(*args), abs=1e-12)
    assert by_weights("token_mean") == pytest.approx(oracle.token_mean(*args), abs=1e-12)
    by_response = oracle.group_token_mean(*args, 1)
    for name in ("sequence_mean", "group_token_mean"):
        assert by_weights(name) == pytest.approx(by_response, abs=1e-12)
    constant = token_weights(mask, "constant_length", dtype=torch.float64)
    assert constant.equal(mask.double() / len(mask))
    for size in (size for size in range(1, len(mask) + 1) if len(mask) % size == 0):
        grouped = oracle.group_token_mean(*args, size)
        assert by_weights("group_token_mean", size) == pytest.approx(grouped, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("log_ratio", [800.0, -800.0])
@pytest.mark.parametrize("advantage", [1.5, 0.0, -1.5])
def test_ratios_beyond_the_range_of_floats(dtype, log_ratio: float, advantage: float) -> None:
    # exp(800) is infinite: the clip must hold, and no inf * 0 = nan may reach values or gradients.
    logps = torch.tensor([[min(log_ratio, 0.0)]], dtype=dtype, requires_grad=True)
    old = logps.detach() - log_ratio
    clip = 0.2, 0.28, 10.0
    values = clipped_surrogate(logps, old, torch.tensor([advantage], dtype=dtype), *clip)
    values.sum().backward()
    args = logps.item(), old.item(), advantage, *clip
    assert values.item() == pytest.approx(oracle.surrogate_value(*args), rel=1e-6)
    assert logps.grad.item() == oracle.surrogate_weight(*args) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["candidates", "all"])
def test_more_tokens_than_torch_quantile_takes(scope: str) -> None:
    # torch.quantile stops at 2^24 elements (pytorch#64947). With n = 2^24 + 1 entropies 0, 1, 2 ...
    # the threshold is 0.75 * 2^24.
    n = 2**24 + 1
    entropies = torch.arange(n, dtype=torch.float64).flip(0)[None]
    logps, mask = double([[-9.0]]).expand(1, n), torch.ones(1, 1, dtype=torch.bool).expand(1, n)
    keep = silence_spurious(logps, entropies, double([1.0]), mask, scope=scope)
    assert torch.equal(keep, entropies >= 0.75 * 2**24)
