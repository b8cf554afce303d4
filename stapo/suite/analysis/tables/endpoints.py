"""Endpoints: what a training is judged by, one number each, and differences between methods.

The accuracy of the last checkpoint is one of several: where trainings oscillate, it depends on when they end.
A study names its primary endpoint before it runs (`compare.endpoint`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import comb, isfinite, nan
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import permutation_test

from stapo.suite.analysis.artefacts import ALL, Artefacts, models_of, units_of
from stapo.suite.analysis.curves import accuracy_line, curves_of, shares_of, values_of
from stapo.suite.analysis.formats import METHOD, MODEL, Column, Table, estimated, with_interval
from stapo.suite.analysis.main_table import of_trainings
from stapo.suite.analysis.tables.stability import entropy_of
from stapo.suite.evaluation.statistics import (
    Interval,
    detectable_difference,
    difference_between,
    mean_of_seeds,
)
from stapo.suite.exhibits import Exhibit
from stapo.suite.study import TrainingRun

EXHIBIT = Exhibit(order=15, title="Endpoints of the trainings")
Values = dict[TrainingRun, float]
EXACT = comb(20, 10)
"""Permutations up to which all are counted: the exchanges of 10 and 10 trainings, the signs of 17 pairs."""
PAIRED = (
    f"Model `{ALL}`: differences are paired by base model and training seed, with Student's interval over "
    "pairs and over base models, and p is the exact test over all signs."
)


class Gap(NamedTuple):
    """Difference of a target and another method, over trainings."""

    value: Interval
    """Target minus method, with Welch's interval, or Student's over pairs of trainings."""
    p_value: float
    """Of the exact test; nan with one training, or with more permutations than `EXACT`."""
    detectable: float
    """Difference that is found with a power of 80 %."""
    over_models: Interval | float = nan
    """The same with Student's interval over base models, each the mean of its pairs."""


class EndpointRow(NamedTuple):
    """An endpoint of a method at a model, over its trainings."""

    model: str
    """`ALL` for all base models, of which each pair of trainings has the same one and the same seed."""
    endpoint: str
    """Name in `ENDPOINTS`."""
    title: str
    values: list[float]
    """By seed, or the mean of each base model; nan if it was not measured."""
    gaps: dict[str, Gap]
    """Title of a target -> it minus this method."""


def _last(artefacts: Artefacts, name: str, share: float) -> Values:
    """Return the mean of a quantity of the metrics over the last share of the steps of each training."""
    count = max(1, round(share * artefacts.study.training.steps))
    return artefacts.of_runs(lambda run: float(values_of(artefacts, run, name)[-count:].mean()))


def _accuracy(artefacts: Artefacts, place: int) -> Values:
    """Return the accuracy of the last weights of each training in percent, under one of the decodings."""
    asked = artefacts.study.run
    if place and len(asked.decodings) == 1:
        return {}
    intervals = of_trainings(artefacts, asked.decodings[place], asked.benchmarks)
    return {run: interval.value for run, interval in intervals.items()}


def _curve(artefacts: Artefacts) -> Values:
    """Return the mean accuracy over the steps in percent: the area under the evaluation curve / steps."""
    study = artefacts.study
    curves = curves_of(study)
    if not study.kept_steps() or not curves:
        return {}
    # The one with the most points.
    curve = study.evaluation.curve
    shares = shares_of(artefacts, *((curve.decoding, curve.benchmarks) if curve else curves[0]))

    def mean(run: TrainingRun) -> float:
        line = accuracy_line(study, run, shares)
        return float(np.trapezoid([*line.values()], [*line])) / max(line)

    return artefacts.of_runs(mean)


def _until_collapse(artefacts: Artefacts) -> Values:
    return artefacts.of_runs(lambda run: 100.0 * entropy_of(artefacts, run).before_collapse)


ENDPOINTS: dict[str, tuple[str, Callable[[Artefacts], Values]]] = {
    "reward-last-half": ("training reward, last half", partial(_last, name="reward", share=0.5)),
    "reward": ("training reward", partial(_last, name="reward", share=1.0)),
    "accuracy": ("final accuracy, first decoding [%]", partial(_accuracy, place=0)),
    "accuracy-last-decoding": ("final accuracy, last decoding [%]", partial(_accuracy, place=-1)),
    "curve": ("mean accuracy of the evaluation curve [%]", _curve),
    "entropy": ("entropy, last tenth [nats]", partial(_last, name="entropy", share=0.1)),
    "until-collapse": ("steps before the entropy collapses [%]", _until_collapse),
}
"""Name in `compare.endpoint` -> what it is, and the function that computes it."""


def endpoint_rows(artefacts: Artefacts, only: str | None = None) -> Iterator[EndpointRow]:
    """Yield a row for each model, endpoint and method; primary endpoint and all base models come first."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None
    names = [only] if only else sorted(ENDPOINTS, key=lambda name: name != primary)
    measured = {name: by_run for name in names if (by_run := ENDPOINTS[name][1](artefacts))}
    targets, _ = study.compared()
    for model in models_of(study):
        for name, by_run in measured.items():
            units = {
                method: [[by_run[run] for run in unit] for unit in units_of(study, model, method)]
                for method in study.run.methods
            }
            means = {method: [*map(fmean, values)] for method, values in units.items()}
            for method in study.run.methods:
                gaps = {
                    study.title(target): paired_gap(units[target], units[method])
                    if model == ALL
                    else gap(means[target], means[method])
                    for target in targets
                    if target != method
                }
                yield EndpointRow(model, name, study.title(method), means[method], gaps)


def primary_texts(artefacts: Artefacts) -> list[str]:
    """Return the differences of the primary endpoint, if the study named one, as sentences."""
    study = artefacts.study
    if not study.compare or not (primary := study.compare.endpoint):
        return []
    rows = [*endpoint_rows(artefacts, only=primary)]
    return [
        f"Primary endpoint, {ENDPOINTS[primary][0]}, {row.model}: {target} minus {row.title} "
        f"{with_interval(gap.value, '+.3g')}" + f", p = {gap.p_value:.3f}" * isfinite(gap.p_value)
        for row in [row for row in rows if row.model == ALL] or rows
        for target, gap in row.gaps.items()
    ]


def paired_gap(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Gap:
    """Return the difference of a target and another method, over pairs of equal base model and seed.

    Values are by base model, then by seed. The exact test is over all signs of the differences.
    """
    gaps = [[a - b for a, b in zip(*unit, strict=True)] for unit in zip(ours, theirs, strict=True)]
    pairs = [gap for unit in gaps for gap in unit]
    over_models = mean_of_seeds([mean_of_seeds(unit).value for unit in gaps])
    p_value = _exact("samples", np.mean, pairs)
    return Gap(mean_of_seeds(pairs), p_value, detectable_difference(pairs), over_models)


def gap(ours: Sequence[float], theirs: Sequence[float]) -> Gap:
    """Return the difference of a target and another method, from one value for each training.

    The exact test is over all ways of giving the trainings to the two methods.
    """
    p_value = _exact("independent", lambda a, b, axis: a.mean(axis) - b.mean(axis), ours, theirs)
    return Gap(difference_between(ours, theirs), p_value, detectable_difference(ours, theirs))


def _exact(
    kind: Literal["samples", "independent"], statistic: Any, *samples: Sequence[float]
) -> float:
    """Return the two-sided p-value of an exact permutation test; nan with one training or too many."""
    number = len(samples[0])
    count = 2**number if kind == "samples" else comb(2 * number, number)
    # All permutations are counted where there are no more of them than resamples.
    if number < 2 or count > EXACT or not all(map(isfinite, chain(*samples))):
        return nan
    result = permutation_test(samples, statistic, permutation_type=kind, n_resamples=count, rng=0)
    return float(result.pvalue)


def make(artefacts: Artefacts) -> Table:
    """Return the table of endpoints, a row for each model, endpoint and method."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None

    def named(row: EndpointRow) -> str:
        return ENDPOINTS[row.endpoint][0] + (" (primary)" if row.endpoint == primary else "")

    pooled, targets = ALL in models_of(study), study.compared()[0]
    which = "The study named no primary endpoint: all are secondary."
    if primary:
        named_first = (
            f"The study named its primary endpoint before it ran: {ENDPOINTS[primary][0]}."
        )
        which = f"{named_first} Others are secondary."
    return Table(
        columns=[
            MODEL,
            Column("Endpoint", named, text=True),
            METHOD,
            Column("Seeds", lambda row: len(row.values)),
            estimated("Mean", lambda row: mean_of_seeds(row.values)),
            *(column for t in targets for column in _differences(study.title(t), pooled)),
        ],
        rows=[*endpoint_rows(artefacts)],
        caption="Endpoints: one number for each training, with 95 % intervals over training seeds (Student's "
        "t for means, Welch's for differences). p: exact test over all exchanges of the trainings of two "
        "methods. Detectable: difference that is found with a probability of 80 %.",
        notes=[
            which,
            "If some trainings collapse, these intervals contain the truth less often than in 95 % of the "
            "cases: docs/evaluation.md. The exact p is at least 0.1 with three trainings of each method, "
            "and at least 0.125 with four pairs.",
            *[PAIRED] * pooled,
        ],
    )


def _differences(target: str, pooled: bool) -> list[Column[EndpointRow]]:
    """Return the columns of a target minus the method of the row; its own rows have none."""

    def column(field: str, heading: str, form: str = "+.3g") -> Column[EndpointRow]:
        title = f"{target} minus it{heading}"
        return Column(title, lambda row: getattr(row.gaps.get(target), field, nan), form)

    return [
        column("value", ""),
        *[column("over_models", ", over base models")] * pooled,
        column("p_value", ", p", ".3f"),
        column("detectable", ", detectable", ".2g"),
    ]
