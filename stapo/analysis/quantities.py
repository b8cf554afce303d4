"""What claims of the paper are decided by: quantities of metrics, scores and tokens, with intervals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, fsum, nan

import numpy as np

from stapo import paths
from stapo.analysis.against_paper import has_papers_average, is_papers
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import Accuracies, accuracies, shown_benchmarks
from stapo.analysis.curves import accuracy_label, values_of
from stapo.analysis.evidence.bounds import ROUNDING, distance_outside
from stapo.analysis.evidence.estimates import Mask, relative, share
from stapo.analysis.evidence.quadrants import masks
from stapo.analysis.evidence.recorded import PERCENTILE, Recorded, percentile, recorded
from stapo.analysis.stability import entropies
from stapo.analysis.table import Interval, scaled, with_interval
from stapo.evaluation.statistics import (
    Array,
    difference_between,
    interval,
    mean_of_seeds,
    of_strongest,
    ratio_between,
    ratio_of_seeds,
    relative_gain,
)
from stapo.exhibits import PAPER_SILENCED
from stapo.files import AGAIN, DamagedFileError
from stapo.methods import BASELINES, METHODS
from stapo.reference import paper
from stapo.study import Study, TrainingRun
from stapo.study.families import families

POOLED = 100_000
"""Tokens of which a share of 0.01 % is measured: ten of them."""
LATE = 0.1
"""Share of the steps that are the end of a training."""
DIGITS_AND_SIGNS = frozenset("0123456789$x")


class UnmeasuredError(Exception):
    """A study does not measure a quantity; the message says why."""


@dataclass(frozen=True)
class Measured:
    """One measured number."""

    where: str
    """Size, or what else it was measured at."""
    what: str
    """What was measured, with the unit."""
    found: Interval
    form: str = ".2f"

    def __str__(self) -> str:
        """Return it with its interval, such as `STAPO minus JustRL [points]: +1.20 [0.30, 2.10]`."""
        return f"{self.what}: {with_interval(self.found, self.form) or 'none'}"


def _need(study: Study, methods: Iterable[str] = (), decodings: Iterable[str] = ()) -> None:
    """Raise unless a study trains some methods and evaluates with some decodings."""
    if missing := [METHODS[name].title for name in methods if name not in study.run.methods]:
        raise UnmeasuredError(f"the study does not train {' and '.join(missing)}")
    for name in decodings:
        if name not in study.run.decodings:
            title = paper()["decodings"][name]
            raise UnmeasuredError(f"the study does not evaluate at {title}")


def _need_papers(study: Study, sizes: Iterable[str]) -> None:
    """Raise unless a study has some of the paper's sizes, with its models."""
    if missing := [size for size in sizes if size not in study.run.sizes]:
        raise UnmeasuredError(f"the study has no {', '.join(missing)}")
    if others := [size for size in sizes if not is_papers(study, size)]:
        raise UnmeasuredError(f"the model of {', '.join(others)} is not the paper's")


# Entropy and silencing over the steps


def _entropy(artefacts: Artefacts, method: str, which: Sequence[str]) -> Iterator[Measured]:
    """Yield the lowest or highest entropy of a method, as docs/stability.md defines them."""
    _need(artefacts.study, [method])
    for name in which:
        what = f"{name} entropy of {artefacts.study.method(method).title} [ratio]"
        for size in artefacts.study.run.sizes:
            values = [getattr(one, name) for one in entropies(artefacts, size, method)]
            # The limit of a collapse is 0.1.
            yield Measured(size, what, ratio_of_seeds(values), ".3f")


def spread_against_baselines(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Yield the spread of a method's entropy divided by that of each baseline."""
    study = artefacts.study
    _need(study, [method, *BASELINES])
    for size in study.run.sizes:
        ours, *theirs = (
            [one.spread for one in entropies(artefacts, size, name)]
            for name in (method, *BASELINES)
        )
        for name, spreads in zip(BASELINES, theirs, strict=True):
            what = f"spread of entropy, {study.method(method).title} / {study.method(name).title}"
            yield Measured(size, what, ratio_between(ours, spreads))


def entropy_below_80th_percentile(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Yield the highest quantile of the tokens' entropies up to 80 %, divided by the highest one of all.

    Both are means over the last tenth of the steps.
    """
    study = artefacts.study
    _need(study, [method])
    for size in study.run.sizes:
        late = [
            _late_quantiles(artefacts, TrainingRun(size, method, seed)) for seed in study.run.seeds
        ]
        levels = set.intersection(*(set(one) for one in late))
        if not min(levels, default=1.0) <= PERCENTILE < max(levels, default=0.0):
            raise UnmeasuredError("quantiles below and above 80 % were not recorded")
        high, low = max(levels), max(level for level in levels if level <= PERCENTILE)
        what = f"entropy at the {100 * low:g} % / {100 * high:g} % quantile of {study.method(method).title}"
        ratios = [one[low] / one[high] if one[high] > 0 else nan for one in late]
        yield Measured(size, what, ratio_of_seeds(ratios), ".3f")


def quantiles_against_baselines(artefacts: Artefacts, method: str, top: bool) -> Iterator[Measured]:
    """Yield a method's quantiles of the entropies minus those of each baseline, in nats, late in training.

    It is the highest quantile that was recorded, or all up to 80 %, of which the largest difference counts.
    """
    study = artefacts.study
    _need(study, [method, *BASELINES])
    for size in study.run.sizes:
        by_method = {
            name: [
                _late_quantiles(artefacts, TrainingRun(size, name, seed))
                for seed in study.run.seeds
            ]
            for name in (method, *BASELINES)
        }
        levels = sorted(set.intersection(*(set(one) for of in by_method.values() for one in of)))
        levels = levels[-1:] if top else [level for level in levels if level <= PERCENTILE]
        if not levels or (top and levels[-1] <= PERCENTILE):
            raise UnmeasuredError("quantiles below and above 80 % were not recorded")
        for name in BASELINES:
            gaps = [
                difference_between(*([one[level] for one in by_method[m]] for m in (method, name)))
                for level in levels
            ]
            place, largest = max(enumerate(gaps), key=lambda one: one[1].value)
            titles = " minus ".join(study.method(one).title for one in (method, name))
            what = f"entropy at the {100 * levels[place]:g} % quantile, {titles} [nats]"
            yield Measured(size, what, largest, "+.3f")


def _late_quantiles(artefacts: Artefacts, run: TrainingRun) -> dict[float, float]:
    """Return level -> quantile of the entropies in nats, mean over the last tenth of the steps.

    Raises:
        DamagedFileError: the metrics have no such quantiles.
    """
    records = artefacts.metrics(run)
    try:
        late = [one["entropy_quantiles"] for one in records[-ceil(LATE * len(records)) :]]
        return {float(level): fsum(one[level] for one in late) / len(late) for level in late[0]}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        path = paths.METRICS.format(study=artefacts.study.name, **run.wildcards)
        raise DamagedFileError(f"{path}: no quantiles of entropies; {AGAIN}") from error


def steps_with_few_silenced(artefacts: Artefacts, method: str) -> Iterator[Measured]:
    """Return the share of the steps in which less than 0.01 % of the tokens are silenced.

    Small steps are pooled: where a step has 1,000 tokens, one silenced token is 0.1 %.
    """
    study = artefacts.study
    _need(study, [method])
    what = f"steps with less than {PAPER_SILENCED:g} % silenced [%]"
    for size in study.run.sizes:
        shares = []
        for seed in study.run.seeds:
            run = TrainingRun(size, method, seed)
            percent = pooled(
                values_of(artefacts, run, "silenced_fraction"),
                values_of(artefacts, run, "num_tokens"),
            )
            shares.append(100.0 * float((percent < PAPER_SILENCED).mean()))
        yield Measured(size, what, mean_of_seeds(shares), ".1f")


def pooled(shares: Array, tokens: Array) -> Array:
    """Return the share in each step, or in successive steps of about `POOLED` tokens where steps are smaller.

    Args:
        shares: (T,) a share of the tokens of each step.
        tokens: (T,) number of tokens of each step.
    """
    # What is left at the end belongs to the last pool.
    last = max(tokens.sum() // POOLED - 1, 0)
    pools = np.minimum((tokens.cumsum() - tokens) // POOLED, last)
    _, pools = np.unique(pools, return_inverse=True)
    found: Array = np.bincount(pools, shares * tokens) / np.maximum(np.bincount(pools, tokens), 1)
    return found


# Accuracy


def _baselines(artefacts: Artefacts, method: str, decoding: str) -> Accuracies:
    _need(artefacts.study, [method, *BASELINES], [decoding])
    return accuracies(artefacts, decoding, tuple(artefacts.study.run.benchmarks))


def _strongest(artefacts: Artefacts, decoding: str, size: str) -> tuple[float, Array]:
    """Return the unbiased average of the strongest baseline at a size, and its resamples."""
    study, cells = artefacts.study, artefacts.scores(decoding).cells
    known = accuracies(artefacts, decoding, tuple(study.run.benchmarks))
    verdicts = {
        name: [cells[size, name, b].correct for b in study.run.benchmarks] for name in BASELINES
    }
    return of_strongest(verdicts, {name: known.draws[size, name] for name in BASELINES})


def gain(artefacts: Artefacts, method: str, decoding: str) -> Iterator[Measured]:
    """Yield Avg of a method minus that of the strongest baseline, in points."""
    study, known = artefacts.study, _baselines(artefacts, method, decoding)
    for size in study.run.sizes:
        value, draws = _strongest(artefacts, decoding, size)
        best = max(BASELINES, key=lambda name: known.values[size, name].value)
        what = (
            f"{study.method(method).title} minus the strongest baseline, {study.method(best).title} "
            "[points of Avg]"
        )
        gained = known.values[size, method].value - value
        yield Measured(size, what, interval(gained, known.draws[size, method] - draws), "+.2f")


def _relative(
    artefacts: Artefacts, method: str, decoding: str, sizes: Sequence[str]
) -> tuple[float, Array]:
    """Return the mean over sizes of 100 (Avg / that of the strongest baseline - 1), and its resamples."""
    known = _baselines(artefacts, method, decoding)
    values, draws = [], []
    for size in sizes:
        strongest, drawn = _strongest(artefacts, decoding, size)
        if strongest <= 0:
            raise UnmeasuredError("the strongest baseline is at 0")
        values.append(100 * (known.values[size, method].value / strongest - 1))
        draws.append(relative_gain(known.draws[size, method], drawn))
    mean: Array = np.mean(draws, axis=0)
    return float(np.mean(values)), mean


def gain_between_decodings(
    artefacts: Artefacts, method: str, decoding: str, other: str
) -> Iterator[Measured]:
    """Yield the relative gain under a decoding minus that under another, means over the study's sizes."""
    study = artefacts.study
    _need(study, decodings=[decoding, other])
    first, second = (
        _relative(artefacts, method, name, study.run.sizes) for name in (decoding, other)
    )
    value = interval(first[0] - second[0], first[1] - second[1])
    here, there = (study.decodings[name].title for name in (decoding, other))
    what = f"relative gain of {study.method(method).title} at {here} minus at {there} [%]"
    yield Measured(_all(study.run.sizes), what, value, "+.2f")


def _all(sizes: Sequence[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"mean of {', '.join(sizes)}"


def headline(
    artefacts: Artefacts, method: str, decoding: str, size: str | None = None
) -> Iterator[Measured]:
    """Yield the relative gain over the strongest baseline: mean over the paper's sizes, or at one."""
    study, sizes = artefacts.study, [size] if size else [*paper()["models"]]
    _need_papers(study, sizes)
    if not has_papers_average(study):
        raise UnmeasuredError("the benchmarks are not the paper's")
    found = interval(*_relative(artefacts, method, decoding, sizes))
    what = f"relative gain of {study.method(method).title} [%]"
    yield Measured(_all(sizes), what, found, "+.2f")


def against_masks(
    artefacts: Artefacts, method: str, others: Sequence[str], decoding: str
) -> Iterator[Measured]:
    """Yield the accuracy of a method minus that of methods with other selections, in points.

    They have the same tau_p and scope where their selections have them, and the same quantile if one has.
    """
    _need(artefacts.study, [method], [decoding])
    rivals = [
        rival for selection in others for rival in _rivals(artefacts.study, method, selection)
    ]
    yield from _differences(artefacts, [(method, rival) for rival in rivals], decoding)


def _rivals(study: Study, method: str, selection: str) -> list[str]:
    own = study.method(method).arguments

    def equal(name: str, *keys: str) -> bool:
        theirs = study.method(name).arguments
        return all(theirs.get(key, own.get(key)) == own.get(key) for key in keys)

    found = [name for name in study.run.methods if study.method(name).selection == selection]
    found = [name for name in found if equal(name, "tau_p", "scope")]
    if not found:
        title = next(one.title for one in METHODS.values() if one.selection == selection)
        raise UnmeasuredError(f"the study does not train {title} with these thresholds")
    return [name for name in found if equal(name, "quantile")] or found


def change(
    artefacts: Artefacts, method: str, argument: str, to: str, decoding: str
) -> Iterator[Measured]:
    """Yield the accuracy with other values of an argument minus that of a method, in points.

    The argument is one of its selection; values are the `highest` or `lowest` of the study, or all `others`.
    """
    study = artefacts.study
    _need(study, [method], [decoding])
    own = float(study.method(method).arguments[argument])
    alike = (one.members for one in families(study) if one.argument == argument)
    members = next((one for one in alike if method in one.values()), {})
    ends = {"highest": max(members, default=own), "lowest": min(members, default=own)}
    values = [ends[to]] if to in ends else [*members]
    pairs = [(members[value], method) for value in values if value != own]
    if not pairs:
        which = {"highest": "a higher", "lowest": "a lower", "others": "another"}[to]
        raise UnmeasuredError(f"the study trains no method with {which} {argument}")
    yield from _differences(artefacts, pairs, decoding)


def _differences(
    artefacts: Artefacts, pairs: Sequence[tuple[str, str]], decoding: str
) -> Iterator[Measured]:
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    known = accuracies(artefacts, decoding, tuple(benchmarks))
    unit = f"[points of {accuracy_label(study, benchmarks).removesuffix(' [%]')}]"
    for size in study.run.sizes:
        for ours, theirs in pairs:
            what = f"{study.method(ours).title} minus {study.method(theirs).title} {unit}"
            yield Measured(size, what, known.difference(size, ours, theirs), "+.2f")


# Token records


def _recorded(artefacts: Artefacts, method: str) -> list[Recorded]:
    _need(artefacts.study, [method])
    return [one for one in recorded(artefacts) if one.method == method]


def spurious_gradient(
    artefacts: Artefacts, method: str, size: str | None = None, scope: str = "candidates"
) -> Iterator[Measured]:
    """Yield by how many percent the mean gradient norm of spurious tokens exceeds that of high/high ones.

    It is that of one of the paper's sizes, or of all of the study's. With the scope `all`, the threshold of
    the entropies is the 80th percentile of all tokens, as in v1 to v3.
    """
    _need(artefacts.study, [method])
    if size is not None:
        _need_papers(artefacts.study, [size])
    for one in _recorded(artefacts, method):
        if size in (None, one.size):
            spurious, *_, high = masks(one)
            if scope == "all":
                low = one.numbers("entropy") < percentile(one.frame)
                spurious, high = one.correct & one.rare & low, one.correct & ~one.rare & ~low
            norm = np.where(one.measured, one.norm, 0.0)
            found = relative(one.sample, norm, spurious & one.measured, high & one.measured)
            what = (
                f"mean gradient norm of spurious tokens of {one.title}, above that of high probability and "
                "high entropy [%]"
            )
            yield Measured(one.size, what, found, "+.1f")


def _within_bounds(one: Recorded) -> tuple[Mask, Mask]:
    """Yield the tokens whose exact gradient norm is within its bounds, and those with a gradient."""
    distance = distance_outside(one)
    return distance <= ROUNDING, ~np.isnan(distance)


def _digits(text: str) -> bool:
    return bool(text) and {*text} <= DIGITS_AND_SIGNS


def _word(text: str) -> bool:
    """Return whether a text has two letters or more, and nothing else."""
    return len(text) > 1 and text.isalpha()


def _texts(one: Recorded, is_it: Callable[[str], bool]) -> Mask:
    return np.array([is_it(text.strip()) for text in one.frame["token"]], dtype=bool)


def _share(
    artefacts: Artefacts, method: str, what: str, classes: Callable[[Recorded], tuple[Mask, Mask]]
) -> Iterator[Measured]:
    """Yield the share of a class of tokens in another, in percent."""
    for one in _recorded(artefacts, method):
        part, whole = classes(one)
        if not whole.any():
            raise UnmeasuredError(f"{one.size}, {one.title}: no such token was recorded")
        percent = scaled(share(one.sample, part & whole, whole), 100)
        yield Measured(one.size, f"{what}, {one.title} [%]", percent, ".1f")


QUANTITIES: dict[str, Callable[..., Iterator[Measured]]] = {
    "lowest_entropy": partial(_entropy, which=["lowest"]),
    "highest_entropy": partial(_entropy, which=["highest"]),
    "entropy_range": partial(_entropy, which=["lowest", "highest"]),
    "spread_against_baselines": spread_against_baselines,
    "quantiles_against_baselines": quantiles_against_baselines,
    "entropy_below_80th_percentile": entropy_below_80th_percentile,
    "steps_with_few_silenced": steps_with_few_silenced,
    "gain": gain,
    "gain_between_decodings": gain_between_decodings,
    "headline": headline,
    "gain_at_size": headline,
    "against_masks": against_masks,
    "change": change,
    "spurious_gradient": spurious_gradient,
    "within_bounds": partial(_share, what="tokens within the bounds", classes=_within_bounds),
    "silenced_digits": partial(
        _share,
        what='silenced tokens that are digits, "$" or "x"',
        classes=lambda one: (_texts(one, _digits), one.silenced),
    ),
    "retained_words": partial(
        _share,
        what="retained rare tokens that are words",
        classes=lambda one: (_texts(one, _word), one.retained),
    ),
}
"""Name in `claims.yaml` -> function of artefacts, method and the arguments of the claim."""
