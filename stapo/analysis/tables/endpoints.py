"""Endpoints: what a training is judged by, one number each, and differences between methods.

The accuracy of the last checkpoint is one of several: where trainings oscillate, it depends on when they end.
A study names its primary endpoint before it runs (`compare.endpoint`).
"""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import of_trainings
from stapo.analysis.curves import accuracy_line, curves_of, shares_of, values_of
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.analysis.tables.stability import entropies
from stapo.evaluation.statistics import (
    Interval,
    detectable_between,
    difference_between,
    exact_p_value,
    mean_of_seeds,
)
from stapo.exhibits import Exhibit
from stapo.study import TrainingRun

EXHIBIT = Exhibit(order=15, title="Endpoints of the trainings")
Values = dict[TrainingRun, float]
EXACT = 10
"""Trainings of a method up to which all exchanges of two methods' trainings are counted."""


class Gap(NamedTuple):
    """Difference of a target and another method, over trainings."""

    value: Interval
    """Target minus method, with Welch's interval."""
    p_value: float
    """Of the exact test; nan with one training or with more than `EXACT`."""
    detectable: float
    """Difference that is found with a power of 80 %."""


class EndpointRow(NamedTuple):
    """An endpoint of a method at a size, over its trainings."""

    size: str
    endpoint: str
    """Name in `ENDPOINTS`."""
    title: str
    """Of the method."""
    values: list[float]
    """By seed; nan if it was not measured."""
    gaps: dict[str, Gap]
    """Title of a target -> it minus this method."""


def _mean_reward(artefacts: Artefacts, share: float) -> Values:
    """Return the mean reward over the last share of the steps of each training."""
    found = {}
    for run in artefacts.study.runs():
        rewards = values_of(artefacts, run, "reward")
        found[run] = float(rewards[len(rewards) - round(share * len(rewards)) :].mean())
    return found


def _accuracy(artefacts: Artefacts) -> Values:
    """Return the accuracy of the last weights of each training in percent, under the first decoding."""
    study = artefacts.study
    found = of_trainings(artefacts, study.run.decodings[0], study.run.benchmarks)
    return {run: interval.value for run, interval in found.items()}


def _curve(artefacts: Artefacts) -> Values:
    """Return the mean accuracy over the steps in percent: the area under the evaluation curve / steps."""
    study = artefacts.study
    curves = curves_of(study)
    if not study.kept_steps() or not curves:
        return {}
    # The one with the most points.
    curve = curves[-1 if study.evaluation.curve else 0]
    shares, found = shares_of(artefacts, *curve), {}
    for run in study.runs():
        line = accuracy_line(study, run, shares)
        found[run] = float(np.trapezoid([*line.values()], [*line])) / max(line)
    return found


def _until_collapse(artefacts: Artefacts) -> Values:
    """Return the share of the steps before the entropy collapses in percent; 100 if it never does."""
    study, found = artefacts.study, {}
    for size in study.run.sizes:
        for method in study.run.methods:
            for seed, one in zip(study.run.seeds, entropies(artefacts, size, method), strict=True):
                found[TrainingRun(size, method, seed)] = 100.0 * one.before_collapse
    return found


ENDPOINTS: dict[str, tuple[str, Callable[[Artefacts], Values]]] = {
    "reward-last-half": ("training reward, last half", lambda of: _mean_reward(of, 0.5)),
    "reward": ("training reward", lambda of: _mean_reward(of, 1.0)),
    "accuracy": ("accuracy at the end [%]", _accuracy),
    "curve": ("mean accuracy of the evaluation curve [%]", _curve),
    "until-collapse": ("steps before the entropy collapses [%]", _until_collapse),
}
"""Name in `compare.endpoint` -> what it is, and the function that computes it."""


def endpoint_rows(artefacts: Artefacts) -> Iterator[EndpointRow]:
    """Yield a row for each size, endpoint and method; the primary endpoint comes first."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None
    names = sorted(ENDPOINTS, key=lambda name: name != primary)
    measured = {name: ENDPOINTS[name][1](artefacts) for name in names}
    targets, _ = study.compared()
    for size in study.run.sizes:
        for name in names:
            if not measured[name]:
                continue
            runs = {
                method: [TrainingRun(size, method, seed) for seed in study.run.seeds]
                for method in study.run.methods
            }
            by_method = {m: [measured[name][run] for run in own] for m, own in runs.items()}
            for method, values in by_method.items():
                others = [target for target in targets if target != method]
                gaps = {study.title(one): gap(by_method[one], values) for one in others}
                yield EndpointRow(size, name, study.title(method), values, gaps)


def gap(ours: Sequence[float], theirs: Sequence[float]) -> Gap:
    """Return the difference of a target and another method, from one value for each training."""
    several = 1 < len(ours) <= EXACT and all(map(isfinite, (*ours, *theirs)))
    p_value = exact_p_value(ours, theirs) if several else nan
    return Gap(difference_between(ours, theirs), p_value, detectable_between(ours, theirs))


def make(artefacts: Artefacts) -> Table:
    """Return the table of endpoints, a row for each size, endpoint and method."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None

    def named(row: EndpointRow) -> str:
        return ENDPOINTS[row.endpoint][0] + (" (primary)" if row.endpoint == primary else "")

    columns: list[Column[EndpointRow]] = [
        SIZE,
        Column("Endpoint", named, text=True),
        METHOD,
        Column("Training seeds", lambda row: len(row.values)),
        estimated("Mean", lambda row: mean_of_seeds(row.values), ".3g"),
        Column("Differences", _gaps, text=True),
    ]
    which = (
        f"The study named its primary endpoint before it ran: {ENDPOINTS[primary][0]}. Others are secondary."
        if primary
        else "The study named no primary endpoint: all are secondary."
    )
    return Table(
        columns=columns,
        rows=[*endpoint_rows(artefacts)],
        caption="Endpoints: one number for each training, with 95 % intervals over training seeds (Student's "
        "t for means, Welch's for differences). p: exact test over all exchanges of the trainings of two "
        "methods. Detectable: difference that is found with a probability of 80 %.",
        notes=[
            which,
            "If some trainings collapse, these intervals contain the truth less often than in 95 % of the "
            "cases: docs/evaluation.md. With three seeds of each method, the exact p is at least 0.1.",
            "Accuracy is that of the last weights under the first decoding, Avg over the benchmarks.",
        ],
    )


def _gaps(row: EndpointRow) -> str:
    """Return the differences of the targets and a method in words."""
    found = []
    for target, gap in row.gaps.items():
        value, bounds = gap.value, ""
        if isfinite(value.low):
            bounds = f" [{value.low:+.3g}, {value.high:+.3g}], detectable {gap.detectable:.2g}"
        p_value = f", p = {gap.p_value:.3f}" if isfinite(gap.p_value) else ""
        found.append(f"{target} minus it {value.value:+.3g}{bounds}{p_value}")
    return "; ".join(found)
