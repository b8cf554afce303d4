"""Cutting changes nothing: every sequence once, within the budget, and the same sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stapo.objective import sequence_mean, token_mean
from stapo.training.minibatch import cut, token_weights


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=40),
    budget=st.integers(1, 400),
)
def test_each_sequence_once_and_within_the_budget(lengths, budget):
    prompts, responses = torch.tensor(lengths).T
    parts = cut(prompts, responses, torch.arange(len(lengths)), budget)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(lengths)))
    for part in parts:
        size = len(part) * int(prompts[part].max() + responses[part].max())
        assert size <= budget or len(part) == 1


def test_only_the_given_rows_longest_first():
    lengths = torch.tensor([5, 9, 1, 7])
    parts = cut(torch.ones(4, dtype=torch.long), lengths, torch.tensor([0, 1, 3]), 20)
    assert [part.tolist() for part in parts] == [[1, 3], [0]]
    assert cut(lengths, lengths, torch.tensor([], dtype=torch.long), 20) == []


@pytest.mark.parametrize(
    ("name", "mean"), [("token_mean", token_mean), ("sequence_mean", sequence_mean)]
)
def test_weights_are_the_aggregation(name, mean):
    generator = torch.Generator().manual_seed(0)
    keep = torch.rand(6, 11, generator=generator) < 0.6
    keep[2] = False
    values = torch.randn(6, 11, generator=generator, dtype=torch.double)
    weights = token_weights(keep, name)
    # Both sum 40 numbers of size 1 in double precision, weights rounded to single.
    torch.testing.assert_close((weights * values).sum(), mean(values, keep), rtol=1e-6, atol=1e-6)
    assert not weights[~keep].any()
    assert token_weights(torch.zeros_like(keep), name).sum() == 0
