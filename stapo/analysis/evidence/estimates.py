"""Weighted estimates from sampled tokens, with 95 % intervals.

In every stratum h (training, step, kind) n_h of N_h tokens were drawn without replacement, so each drawn
token stands for w_h = N_h / n_h tokens. With sums over the drawn tokens of all trainings of one method and
size:

- number of tokens of a class, per training: sum of w over the class, / trainings
- share of a part in a whole: sum of w over the part / sum of w over the whole
- mean of y in a class: sum of w y / sum of w, both over the class
- ratio: sum of w y / sum of w x
- relative difference of means, in percent: 100 (mean of y in a class / mean of y in another - 1)

With one training, an interval says how far the estimate may be from the value over *all* tokens of this
training. Its variance is the analytic one of a stratified sample, with finite-population correction and
Taylor linearisation: sum over h of (1 - 1 / w_h) n_h s_h^2, where s_h^2 is the variance in the stratum of w
e, and e is a token's contribution to the estimate to first order. It is 0 if all tokens were recorded.
Prompts are not resampled: tokens were drawn one by one and not by prompt or response, so that the likeness
of tokens of one response does not change how far the sample may be from the training. An analytic formula
is exact where sampling is, needs no random numbers, and gives equal bytes on every machine. A stratum with
one drawn token of several uses (w e)^2 for its variance, which is too large rather than too small.

With several trainings (seeds), an interval is about the method: trainings are independent, and the variance
is that of their contributions, S / (S - 1) sum (z_s - mean z)^2, with Student's t of S - 1 degrees of
freedom. It contains the variance of the sampling.

Intervals of shares are those of Clopper and Pearson at the effective sample size p (1 - p) / variance (Korn
and Graubard), because a normal interval of a rare class contains negative shares. If no token of a class
was drawn, at most -ln(0.025) w tokens of it exist, where w is the largest weight: otherwise one would have
been drawn with a probability of 97.5 %. Other intervals have Student's t: around the logarithm of means and
ratios of values that are not negative, whose distributions are skewed, symmetric otherwise. Without two
drawn tokens that stand for others, there is no interval, and its ends are nan. In simulations 95 % of the
intervals hold the truth, of means of gradient norms over fewer than 100 drawn tokens about 90 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, fsum, isnan, log, nan, sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from stapo.evaluation.statistics import LEVEL, Interval

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TAIL = (1 - LEVEL) / 2
UNSEEN = -log(TAIL)
"""Tokens per weight that a class without a drawn token has at most."""


@dataclass(frozen=True)
class Estimate(Interval):
    """An estimate with its 95 % interval; nan where there is none."""

    records: int
    """Number of drawn tokens that it is about."""


@dataclass(frozen=True)
class Sample:
    """Drawn tokens of the trainings of one method and size; all arrays are (n,)."""

    weight: Array
    stratum: NDArray[np.int64]
    training: NDArray[np.int64]
    """Index of the training, from 0."""
    trainings: int

    @cached_property
    def certain(self) -> Mask:
        """Whether a token stands for itself only, since its whole stratum was recorded."""
        return self.weight <= 1

    @cached_property
    def drawn(self) -> Array:
        """Number of drawn tokens of each stratum."""
        return np.bincount(self.stratum).astype(float)

    @cached_property
    def correction(self) -> Array:
        """Factor 1 - n_h / N_h of each stratum."""
        return 1 - self.drawn / np.bincount(self.stratum, self.weight)


def sample_of(frames: Sequence[pd.DataFrame]) -> Sample:
    """Return the sample of some trainings, tokens in the order of the frames.

    Args:
        frames: token records of each training, with the columns step, kind and weight.
    """
    training = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    keys = pd.concat([frame[["step", "kind"]] for frame in frames]).assign(training=training)
    stratum = keys.groupby(["training", "step", "kind"], sort=True).ngroup().to_numpy(np.int64)
    weight = np.concatenate([frame["weight"].to_numpy(float) for frame in frames])
    return Sample(weight, stratum, training.astype(np.int64), len(frames))


def total(sample: Sample, y: Array | Mask) -> float:
    """Return the weighted sum of y, over all trainings; exact summation, so in any order."""
    return fsum((sample.weight * y).tolist())


def variance(sample: Sample, contributions: Array) -> float:
    """Return the variance of the weighted sum of the tokens' contributions (n,)."""
    weighted = sample.weight * contributions
    if sample.trainings > 1:
        sums = np.bincount(sample.training, weighted, minlength=sample.trainings)
        deviations = sums - fsum(sums.tolist()) / sample.trainings
        factor = sample.trainings / (sample.trainings - 1)
        return factor * fsum((deviations**2).tolist())
    if not len(weighted):
        return 0.0
    sums, drawn = np.bincount(sample.stratum, weighted), sample.drawn
    deviations = weighted - (sums / drawn)[sample.stratum]
    squares = np.bincount(sample.stratum, deviations**2) * drawn / np.maximum(drawn - 1, 1)
    return fsum((sample.correction * np.where(drawn > 1, squares, sums**2)).tolist())


def count(sample: Sample, part: Mask, possible: Mask | None = None) -> Estimate:
    """Return the number of tokens of a class, per training; arguments as for `share`."""
    everything, trainings = np.ones(len(part), bool), sample.trainings
    tokens = total(sample, everything)
    if not tokens:
        return Estimate(0.0, 0.0, 0.0, 0)
    spread = variance(sample, part / tokens)
    found = _share(sample, part, everything, spread, possible)
    value = total(sample, part) / trainings
    # Exact numbers stay whole.
    low, high = (
        value if end == found.value else float(end * tokens / trainings)
        for end in (found.low, found.high)
    )
    if trainings == 1:
        low = max(low, float(found.records))  # Recorded tokens exist.
    return Estimate(value, low, high, found.records)


def share(sample: Sample, part: Mask, whole: Mask, possible: Mask | None = None) -> Estimate:
    """Return the share of a class in another that contains it.

    Args:
        sample: the drawn tokens.
        part: (n,) tokens of the class.
        whole: (n,) tokens of the class that contains it.
        possible: (n,) tokens of the strata in which the class can occur; None for all.
    """
    size = total(sample, whole)
    if not size:
        return Estimate(nan, nan, nan, 0)
    value = total(sample, part) / size
    return _share(sample, part, whole, variance(sample, (part - value * whole) / size), possible)


def _share(
    sample: Sample, part: Mask, whole: Mask, spread: float, possible: Mask | None
) -> Estimate:
    """Return a share with the interval that follows from its variance."""
    size = total(sample, whole)
    value, records = total(sample, part) / size, int(part.sum())
    if spread > 0 and 0 < value < 1:
        low, high = _clopper_pearson(value, spread, sample.trainings)
        return Estimate(value, min(low, value), max(high, value), records)
    free = ~sample.certain & whole
    present, absent = free & part, free & ~part & (True if possible is None else possible)
    below = sample.weight[present].max(initial=0.0) * UNSEEN / size
    above = sample.weight[absent].max(initial=0.0) * UNSEEN / size
    return Estimate(value, max(value - float(below), 0.0), min(value + float(above), 1.0), records)


def _clopper_pearson(value: float, spread: float, trainings: int) -> tuple[float, float]:
    """Return the interval of a share at its effective sample size."""
    size = value * (1 - value) / spread
    if trainings > 1:
        quantiles = stats.norm.ppf(1 - TAIL), stats.t.ppf(1 - TAIL, trainings - 1)
        size *= float(quantiles[0] / quantiles[1]) ** 2
    hits = value * size
    low = stats.beta.ppf(TAIL, hits, size - hits + 1)
    high = stats.beta.ppf(1 - TAIL, hits + 1, size - hits)
    return float(low), float(high)


def mean(sample: Sample, y: Array, of: Mask) -> Estimate:
    """Return the mean of y over the tokens of a class."""
    return ratio(sample, np.where(of, y, 0.0), of.astype(float))


def ratio(sample: Sample, y: Array, x: Array) -> Estimate:
    """Return the weighted sum of y divided by that of x, which is not negative."""
    size, about = total(sample, x), (y != 0) | (x != 0)
    if not size:
        return Estimate(nan, nan, nan, int(about.sum()))
    value = total(sample, y) / size
    skewed = value > 0 and bool((y >= 0).all())
    return _with_t(sample, value, (y - value * x) / size, [about], skewed)


def relative(sample: Sample, y: Array, of: Mask, against: Mask) -> Estimate:
    """Return by how many percent the mean of y in a class exceeds that in another."""
    sizes = [total(sample, one) for one in (of, against)]
    if not all(sizes):
        return Estimate(nan, nan, nan, int(of.sum()))
    ours, theirs = (
        total(sample, np.where(one, y, 0.0)) / size
        for one, size in zip((of, against), sizes, strict=True)
    )
    if not theirs:
        return Estimate(nan, nan, nan, int(of.sum()))
    first = of * (y - ours) / (sizes[0] * theirs)
    second = against * (y - theirs) * ours / (sizes[1] * theirs**2)
    skewed = ours > 0 and bool((y >= 0).all())
    found = _with_t(sample, ours / theirs, first - second, [of, against], skewed)
    low, value, high = (100 * (one - 1) for one in (found.low, found.value, found.high))
    return Estimate(value, low, high, int(of.sum()))


def _with_t(
    sample: Sample, value: float, contributions: Array, classes: Sequence[Mask], skewed: bool
) -> Estimate:
    """Return an estimate about some classes of tokens, with the interval of Student's t.

    Args:
        sample: the drawn tokens.
        value: the estimate.
        contributions: (n,) contribution of each token to it, to first order.
        classes: classes of tokens that it is about.
        skewed: whether the interval is that of its logarithm.
    """
    records = int(np.logical_or.reduce(classes).sum())
    freedom = sample.trainings - 1
    if sample.trainings == 1:
        free = [int((one & ~sample.certain).sum()) for one in classes]
        if not any(free):
            return Estimate(value, value, value, records)
        freedom = min(one for one in free if one) - 1
    if freedom < 1:
        return Estimate(value, nan, nan, records)
    margin = float(stats.t.ppf(1 - TAIL, freedom)) * sqrt(variance(sample, contributions))
    if skewed:
        # Beyond 700, exp is infinite: an interval without an end.
        factor = exp(min(margin / value, 700.0))
        return Estimate(value, value / factor, value * factor, records)
    return Estimate(value, value - margin, value + margin, records)


def written(found: Estimate, form: str = ".3g", unit: float = 1.0) -> str:
    """Return an estimate as text, with its interval in brackets; empty without a token.

    Args:
        found: the estimate.
        form: format specification of the three numbers.
        unit: factor of the three numbers, such as 100 for percent.
    """
    if isnan(found.value):
        return ""
    value, low, high = (format(unit * one, form) for one in (found.value, found.low, found.high))
    return value if isnan(found.low) else f"{value} [{low}, {high}]"
