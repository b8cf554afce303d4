"""Sampling of tokens by the inverse of their cumulative distribution, from random numbers of each response.

A token is the quantile of one uniform number, so that a response depends on its own seed and logits alone. A
token outside the nucleus is drawn again: that gives the distribution of the nucleus without sorting the
vocabulary, which takes longer than the model.

R responses, V words; masses are probabilities up to a factor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

BLOCK = 128
"""Words that are summed before sums are accumulated, in double precision."""
CHUNK = 2**20
"""Logits of one pass on a CPU: they stay in its cache, and memory is not asked of the system again."""


@dataclass(frozen=True)
class Sampler:
    """The distribution that tokens are drawn from."""

    temperature: float = 1.0
    """Divides the logits; 0 means the likeliest token."""
    top_k: int = 0
    """Number of likeliest tokens to draw from; 0 means all."""
    top_p: float = 1.0
    """Share of the probability that the likeliest tokens have to draw from, after top-k."""

    def draw(self, logits: Tensor, rows: Tensor, generators: Sequence[Random]) -> Tensor:
        """Return a token of each of the rows (n,) of logits (R, V); equally likely ones are not split."""
        if self.temperature == 0:
            return logits.argmax(dim=1)[rows]
        size = max(CHUNK // logits.shape[1], 1) if logits.device.type == "cpu" else len(rows)
        starts = range(0, len(rows), size)
        parts = [slice(start, start + size) for start in starts]
        return torch.cat(
            [self._draw(logits[rows[part]].float(), generators[part]) for part in parts]
        )

    def _draw(self, logits: Tensor, generators: Sequence[Random]) -> Tensor:
        """Return a token (n,) for each row of logits (n, V), which are overwritten."""
        largest = logits.amax(dim=1, keepdim=True)
        masses = logits.sub_(largest).div_(self.temperature).exp_()
        words = None
        if 0 < self.top_k < masses.shape[1]:
            masses, words = masses.topk(self.top_k, dim=1)
        places = quantiles(masses, _uniform(generators, masses))
        if self.top_p < 1:
            places = self._in_nucleus(masses, places, generators)
        return places if words is None else words.gather(1, places.unsqueeze(1)).squeeze(1)

    def _in_nucleus(self, masses: Tensor, places: Tensor, generators: Sequence[Random]) -> Tensor:
        """Return places (n,) in the nucleus of masses (n, V), where those drawn are not in it others.

        A token is in the nucleus if likelier ones have less than top_p of the probability. Less likely tokens
        than one outside are outside too, so that few draws are needed even for a small nucleus.
        """
        limits = self.top_p * masses.sum(dim=1)
        result, left = places.clone(), torch.arange(len(places), device=places.device)
        while True:
            drawn = masses.gather(1, places.unsqueeze(1))
            outside = torch.where(masses > drawn, masses, 0.0).sum(dim=1) >= limits
            result[left] = places
            numbers = outside.nonzero().flatten()
            if len(numbers) == 0:
                return result
            masses, drawn = masses[numbers], drawn[numbers]
            masses.masked_fill_(masses <= drawn, 0.0)
            left, limits = left[numbers], limits[numbers]
            generators = [generators[number] for number in numbers.tolist()]
            places = quantiles(masses, _uniform(generators, masses))


def _uniform(generators: Sequence[Random], like: Tensor) -> Tensor:
    """Return a number in [0, 1) of each generator, (n,) in double precision."""
    return like.new_tensor([generator.random() for generator in generators], dtype=torch.float64)


def quantiles(masses: Tensor, shares: Tensor) -> Tensor:
    """Return the first place (n,) of masses (n, V) up to which they have more than a share of their sum.

    The shares (n,) are in double precision, in which sums are accumulated; a weight of 0 is never chosen.
    """
    count = masses.shape[1] // BLOCK * BLOCK
    if count == 0:
        return _quantiles(masses, shares)[0]
    sums = masses[:, :count].reshape(len(masses), -1, BLOCK).sum(dim=2)
    if count < masses.shape[1]:
        sums = torch.cat([sums, masses[:, count:].sum(dim=1, keepdim=True)], dim=1)
    blocks, shares = _quantiles(sums, shares)
    places = blocks.unsqueeze(1) * BLOCK + torch.arange(BLOCK, device=blocks.device)
    inside = masses.gather(1, places.clamp(max=masses.shape[1] - 1))
    inside.masked_fill_(places >= masses.shape[1], 0.0)
    return blocks * BLOCK + _quantiles(inside, shares)[0]


def _quantiles(masses: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return places as `quantiles` does, and the share (n,) of its own weight at which each was chosen."""
    sums = masses.double().cumsum(dim=1)
    total = sums[:, -1:]
    # A product that is rounded up to the sum itself would lie behind the last weight.
    target = torch.minimum(shares.unsqueeze(1) * total, total.nextafter(torch.zeros_like(total)))
    # The bound matters for NaN alone, of which the loss will tell.
    places = torch.searchsorted(sums, target, right=True).clamp(max=masses.shape[1] - 1)
    chosen = masses.gather(1, places).double()
    before = sums.gather(1, places) - chosen
    return places.squeeze(1), ((target - before) / chosen).clamp(0, 1).squeeze(1)
