"""What claims of the paper are decided by: quantities of metrics and scores, each with an interval."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, fsum, nan

import numpy as np

from stapo import paths
from stapo.analysis.against_paper import has_papers_average, is_papers
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import Accuracies, accuracies, shown_benchmarks
from stapo.analysis.curves import accuracy_label, values_of
from stapo.analysis.stability import EntropyNumbers, entropies
from stapo.analysis.table import with_interval
from stapo.evaluation.statistics import (
    Array,
    Interval,
    interval,
    mean_of_seeds,
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

PERCENTILE = 0.8
POOLED = 100_000
"""Tokens of which a share of 0.01 % is measured: ten of them."""
LATE = 0.1
"""Share of the steps that are the end of a training."""


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


def need_methods(study: Study, methods: Iterable[str]) -> None:
    """Raise unless a study trains some methods.

    Raises:
        UnmeasuredError: it does not.
    """
    missing = [METHODS[name].title for name in methods if name not in study.run.methods]
    if missing:
        raise UnmeasuredError(f"the study does not train {' and '.join(missing)}")


def _need_decodings(study: Study, names: Iterable[str]) -> None:
    for name in names:
        if name not in study.run.decodings:
            title = paper()["decodings"][name]
            raise UnmeasuredError(f"the study does not evaluate at {title}")


def _of_entropy(
    artefacts: Artefacts, method: str, what: str, of: Callable[[EntropyNumbers], float]
) -> list[Measured]:
    study = artefacts.study
    need_methods(study, [method])
    return [
        Measured(
            size,
            f"{what} of {study.method(method).title} [ratio]",
            ratio_of_seeds([of(one) for one in entropies(artefacts, size, method)]),
            ".3f",  # The limit of a collapse is 0.1.
        )
        for size in study.run.sizes
    ]


def lowest_entropy(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the lowest entropy of a method, as docs/stability.md defines it."""
    return _of_entropy(artefacts, method, "lowest entropy", lambda one: one.lowest)


def highest_entropy(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the highest entropy of a method, as docs/stability.md defines it."""
    return _of_entropy(artefacts, method, "highest entropy", lambda one: one.highest)


def entropy_range(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the lowest and the highest entropy of a method."""
    return lowest_entropy(artefacts, method) + highest_entropy(artefacts, method)


def spread_against_baselines(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the spread of a method's entropy divided by that of each baseline."""
    study = artefacts.study
    need_methods(study, [method, *BASELINES])
    found = []
    for size in study.run.sizes:
        spreads = {
            name: [one.spread for one in entropies(artefacts, size, name)]
            for name in (method, *BASELINES)
        }
        for name in BASELINES:
            what = f"spread of entropy, {study.method(method).title} / {study.method(name).title}"
            found.append(Measured(size, what, ratio_between(spreads[method], spreads[name])))
    return found


def entropy_below_80th_percentile(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the highest quantile of the tokens' entropies up to 80 %, divided by the highest one of all.

    Both are means over the last tenth of the steps.
    """
    study = artefacts.study
    need_methods(study, [method])
    found = []
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
        found.append(Measured(size, what, ratio_of_seeds(ratios), ".3f"))
    return found


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


def steps_with_few_silenced(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the share of the steps in which less than 0.01 % of the tokens are silenced.

    Small steps are pooled: where a step has 1,000 tokens, one silenced token is 0.1 %.
    """
    study = artefacts.study
    need_methods(study, [method])
    found = []
    for size in study.run.sizes:
        shares = [
            100.0 * float((_silenced(artefacts, run) < PAPER_SILENCED).mean())
            for seed in study.run.seeds
            for run in [TrainingRun(size, method, seed)]
        ]
        what = f"steps with less than {PAPER_SILENCED:g} % silenced [%]"
        found.append(Measured(size, what, mean_of_seeds(shares), ".1f"))
    return found


def _silenced(artefacts: Artefacts, run: TrainingRun) -> Array:
    """Return the silenced tokens of a training in %, as `pooled`."""
    shares, records = values_of(artefacts, run, "silenced_fraction"), artefacts.metrics(run)
    try:
        tokens = np.array([float(record["num_tokens"]) for record in records])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        path = paths.METRICS.format(study=artefacts.study.name, **run.wildcards)
        raise DamagedFileError(f"{path}: no number of tokens; {AGAIN}") from error
    return pooled(shares, tokens)


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


def _baselines(artefacts: Artefacts, method: str, decoding: str) -> Accuracies:
    need_methods(artefacts.study, [method, *BASELINES])
    _need_decodings(artefacts.study, [decoding])
    return accuracies(artefacts, decoding, tuple(artefacts.study.run.benchmarks))


def gain(artefacts: Artefacts, method: str, decoding: str) -> list[Measured]:
    """Return Avg of a method minus that of the strongest baseline, in points."""
    study, known = artefacts.study, _baselines(artefacts, method, decoding)
    found = []
    for size in study.run.sizes:
        strongest = max(BASELINES, key=lambda name: known.values[size, name].value)
        value = known.values[size, method].value - known.values[size, strongest].value
        # Each resample has its own strongest baseline.
        others = np.max([known.draws[size, name] for name in BASELINES], axis=0)
        what = f"{study.method(method).title} minus {study.method(strongest).title} [points of Avg]"
        drawn = interval(value, known.draws[size, method] - others)
        found.append(Measured(size, what, drawn, "+.2f"))
    return found


def _relative(
    artefacts: Artefacts, method: str, decoding: str, sizes: Sequence[str]
) -> tuple[float, Array]:
    """Return the mean over sizes of 100 (Avg / that of the strongest baseline - 1), and its resamples."""
    known = _baselines(artefacts, method, decoding)
    values, draws = [], []
    for size in sizes:
        strongest = max(known.values[size, name].value for name in BASELINES)
        if strongest <= 0:
            raise UnmeasuredError("the strongest baseline is at 0")
        values.append(100 * (known.values[size, method].value / strongest - 1))
        others = [known.draws[size, name] for name in BASELINES]
        draws.append(relative_gain(known.draws[size, method], others))
    mean: Array = np.mean(draws, axis=0)
    return float(np.mean(values)), mean


def gain_between_decodings(
    artefacts: Artefacts, method: str, decoding: str, other: str
) -> list[Measured]:
    """Return the relative gain under a decoding minus that under another, means over the study's sizes."""
    study = artefacts.study
    _need_decodings(study, [decoding, other])
    first, second = (
        _relative(artefacts, method, name, study.run.sizes) for name in (decoding, other)
    )
    value = interval(first[0] - second[0], first[1] - second[1])
    here, there = (study.decodings[name].title for name in (decoding, other))
    what = f"relative gain of {study.method(method).title} at {here} minus at {there} [%]"
    return [Measured(_all(study.run.sizes), what, value, "+.2f")]


def _all(sizes: Sequence[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"mean of {', '.join(sizes)}"


def _papers(study: Study, sizes: Iterable[str]) -> None:
    """Raise unless a study has some of the paper's sizes, with its models and benchmarks."""
    if missing := [size for size in sizes if size not in study.run.sizes]:
        raise UnmeasuredError(f"the study has no {', '.join(missing)}")
    if others := [size for size in sizes if not is_papers(study, size)]:
        raise UnmeasuredError(f"the model of {', '.join(others)} is not the paper's")


def headline(artefacts: Artefacts, method: str, decoding: str) -> list[Measured]:
    """Return the relative gain over the strongest baseline, mean over the paper's sizes."""
    study, sizes = artefacts.study, [*paper()["models"]]
    _papers(study, sizes)
    return _gain_of(artefacts, method, decoding, sizes)


def gain_at_size(artefacts: Artefacts, method: str, decoding: str, size: str) -> list[Measured]:
    """Return the relative gain over the strongest baseline at one of the paper's sizes."""
    _papers(artefacts.study, [size])
    return _gain_of(artefacts, method, decoding, [size])


def _gain_of(
    artefacts: Artefacts, method: str, decoding: str, sizes: Sequence[str]
) -> list[Measured]:
    study = artefacts.study
    if not has_papers_average(study):
        raise UnmeasuredError("the benchmarks are not the paper's")
    what = f"relative gain of {study.method(method).title} [%]"
    found = interval(*_relative(artefacts, method, decoding, sizes))
    return [Measured(_all(sizes), what, found, "+.2f")]


def against_masks(
    artefacts: Artefacts, method: str, others: Sequence[str], decoding: str
) -> list[Measured]:
    """Return the accuracy of a method minus that of methods with other selections, in points.

    They have the same tau_p and scope where their selections have them, and the same quantile if one has.
    """
    study = artefacts.study
    need_methods(study, [method])
    _need_decodings(study, [decoding])
    rivals = [rival for selection in others for rival in _rivals(study, method, selection)]
    return _differences(artefacts, [(method, rival) for rival in rivals], decoding)


def _rivals(study: Study, method: str, selection: str) -> list[str]:
    own = study.method(method).arguments

    def equal(name: str, keys: Iterable[str]) -> bool:
        theirs = study.method(name).arguments
        return all(theirs.get(key, own.get(key)) == own.get(key) for key in keys)

    found = [name for name in study.run.methods if study.method(name).selection == selection]
    found = [name for name in found if equal(name, ("tau_p", "scope"))]
    if not found:
        title = next(one.title for one in METHODS.values() if one.selection == selection)
        raise UnmeasuredError(f"the study does not train {title} with these thresholds")
    return [name for name in found if equal(name, ("quantile",))] or found


def change(
    artefacts: Artefacts, method: str, argument: str, to: str, decoding: str
) -> list[Measured]:
    """Return the accuracy with other values of an argument minus that of a method, in points.

    Args:
        artefacts: the files of the study.
        method: the method with its own value.
        argument: name of an argument of its selection.
        to: `highest` or `lowest` value of the study, or all `others`.
        decoding: how responses were sampled.
    """
    study = artefacts.study
    need_methods(study, [method])
    _need_decodings(study, [decoding])
    own = float(study.method(method).arguments[argument])
    members = next(
        (
            f.members
            for f in families(study)
            if f.argument == argument and method in f.members.values()
        ),
        {},
    )
    ends = {"highest": max(members, default=own), "lowest": min(members, default=own)}
    values = [ends[to]] if to in ends else [*members]
    pairs = [(members[value], method) for value in values if value != own]
    if not pairs:
        which = {"highest": "a higher", "lowest": "a lower", "others": "another"}[to]
        raise UnmeasuredError(f"the study trains no method with {which} {argument}")
    return _differences(artefacts, pairs, decoding)


def _differences(
    artefacts: Artefacts, pairs: Sequence[tuple[str, str]], decoding: str
) -> list[Measured]:
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    known = accuracies(artefacts, decoding, tuple(benchmarks))
    label = accuracy_label(study, benchmarks).removesuffix(" [%]")
    return [
        Measured(
            size,
            f"{study.method(ours).title} minus {study.method(theirs).title} [points of {label}]",
            known.difference(size, ours, theirs),
            "+.2f",
        )
        for size in study.run.sizes
        for ours, theirs in pairs
    ]


QUANTITIES: dict[str, Callable[..., list[Measured]]] = {
    function.__name__: function
    for function in (
        lowest_entropy,
        highest_entropy,
        entropy_range,
        spread_against_baselines,
        entropy_below_80th_percentile,
        steps_with_few_silenced,
        gain,
        gain_between_decodings,
        headline,
        gain_at_size,
        against_masks,
        change,
    )
}
"""Name in `claims.yaml` -> function of artefacts, method and the arguments of the claim."""
