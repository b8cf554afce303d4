"""The token of a uniform number is the quantile of the distribution, and the nucleus is Transformers'."""

from random import Random

import pytest
import torch
from scipy.stats import chisquare
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from stapo.core.sampling import BLOCK, Sampler

ROUNDING = 1e-6
"""Of a share of a sum of float32 numbers: 2^-24 for each exponential and each level of a sum of a block."""


class Given:
    """A generator with given numbers."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def logits_of(words: int) -> torch.Tensor:
    return 3 * torch.randn(words, generator=torch.Generator().manual_seed(words))


@pytest.mark.parametrize("words", [5, BLOCK, 3 * BLOCK + 1, 50_257, 151_936])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_token_of_a_number_is_the_quantile_in_double_precision(words, temperature):
    logits = logits_of(words)
    logits[1] = -torch.inf
    ends = (logits.double() / temperature).softmax(dim=0).cumsum(dim=0)
    numbers = [*torch.linspace(0, 1, 300, dtype=torch.double)[:-1].tolist(), 1 - 2**-53]
    # One number for each, in several passes.
    rows = torch.zeros(len(numbers), dtype=torch.long)
    drawn = Sampler(temperature).draw(logits[None], rows, [Given(one) for one in numbers])
    starts, given = ends - ends.diff(prepend=ends.new_zeros(1)), ends.new_tensor(numbers)
    assert (starts[drawn] <= given + ROUNDING).all()
    assert (ends[drawn] >= given - ROUNDING).all()
    assert (drawn != 1).all()
    if words < 1000:
        assert torch.equal(drawn, torch.searchsorted(ends, given, right=True).clamp(max=words - 1))


@pytest.mark.parametrize("top_k", [0, 50])
@pytest.mark.parametrize("top_p", [0.9, 0.3, 1e-6])
def test_the_nucleus_is_that_of_transformers(top_p, top_k):
    """Every token is drawn first in one row; those outside the nucleus must be replaced, no others."""
    logits = logits_of(1000)
    scores = TemperatureLogitsWarper(0.7)(None, logits[None])
    scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    kept = TopPLogitsWarper(top_p)(None, scores)[0] > -torch.inf
    before = scores[0].double().softmax(dim=0)
    if top_k:
        order = logits.argsort(descending=True)[:top_k]
        middles = before[order].cumsum(dim=0) - before[order] / 2
    else:
        order = torch.arange(1000)
        middles = before.cumsum(dim=0) - before / 2
    again = [0.9] * 40
    draw = Sampler(0.7, top_k, top_p).draw
    drawn = draw(logits[None], order * 0, [Given(one, *again) for one in middles.tolist()])
    # Beneath float32's steps no middle is hit.
    likely = before[order] > 10 * ROUNDING
    assert likely.sum() > kept.sum()
    assert torch.equal((drawn == order)[likely], kept[order][likely])
    assert kept[drawn].all()


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(0.7, 0, 0.9), Sampler(1.3, 30, 0.95)])
def test_draws_have_the_shares_of_transformers_warpers(sampler):
    logits, count = logits_of(300), 50_000
    scores = TemperatureLogitsWarper(sampler.temperature)(None, logits[None])
    scores = TopKLogitsWarper(sampler.top_k or 300)(None, scores)
    expected = count * TopPLogitsWarper(sampler.top_p)(None, scores)[0].double().softmax(dim=0)
    rows = torch.zeros(count, dtype=torch.long)
    drawn = sampler.draw(logits[None], rows, [Random(seed) for seed in range(count)])
    found = drawn.bincount(minlength=300)
    assert found[expected == 0].sum() == 0
    often = expected >= 10  # The test of Pearson needs some of each; the others are one kind.
    kinds = [torch.cat([one[often], one[~often].sum()[None]]) for one in (found, expected)]
    kinds = [one[kinds[1] > 0] for one in kinds]
    # Of a right sampler one seed in a thousand fails; these do not.
    assert chisquare(*(one.numpy() for one in kinds)).pvalue > 1e-3


def test_nothing_is_drawn_for_rows_that_are_not_asked_for_and_greedy_needs_no_number():
    logits = torch.stack([logits_of(40) + shift for shift in range(3)])
    assert Sampler(0).draw(logits, torch.tensor([0, 2]), []).tolist() == [logits[0].argmax()] * 2
    before = logits.clone()
    (drawn,) = Sampler().draw(logits, torch.tensor([1]), [Random(5)])
    assert torch.equal(logits, before)
    assert drawn == Sampler().draw(logits[1:2], torch.tensor([0]), [Random(5)])
