"""Endpoints: what a training is judged by, one number each, and differences between methods.

The accuracy of the last checkpoint is one of several: where trainings oscillate, it depends on when they end.
A study names its primary endpoint before it runs (`compare.endpoint`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf, isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy.stats import permutation_test

from stapo.suite import paths
from stapo.suite.analysis.artefacts import ALL, Artefacts, models_of, units_of
from stapo.suite.analysis.curves import accuracy_line, curves_of, shares_of, values_of
from stapo.suite.analysis.formats import (
    METHOD,
    MODEL,
    Column,
    Table,
    estimated,
    read_csv,
    with_interval,
)
from stapo.suite.analysis.main_table import of_trainings
from stapo.suite.analysis.tables.stability import entropy_of
from stapo.suite.evaluation.statistics import Interval, detectable_difference, mean_of_seeds
from stapo.suite.exhibits import Exhibit
from stapo.suite.study import Study, TrainingRun

EXHIBIT = Exhibit(order=15, title="Endpoints of the trainings")
Values = dict[TrainingRun, float]
PRIMARY = " (primary)"
LIMITS = {"[%]": (0.0, 100.0), "[nats]": (0.0, inf)}
"""Unit of an endpoint -> the least and the most that it can be."""
EXACT = 2**17
"""Signs of pairs up to which all are counted."""


class Gap(NamedTuple):
    """Difference of a target and another method, over pairs of trainings."""

    value: Interval
    """Target minus method, with Student's interval over pairs."""
    p_value: float
    """Of the exact test over all signs; nan with one pair, or with more signs than `EXACT`."""
    detectable: float
    """Difference that is found with a power of 80 %."""
    over_models: Interval | float
    """The same with Student's interval over base models, each the mean of its pairs; nan for a single one."""


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
                    study.title(target): gap(units[target], units[method])
                    for target in targets
                    if target != method
                }
                if model != ALL:
                    gaps = {title: pairs._replace(over_models=nan) for title, pairs in gaps.items()}
                yield EndpointRow(model, name, study.title(method), means[method], gaps)


def primary_texts(artefacts: Artefacts, targets: Sequence[str] | None = None) -> list[str]:
    """Return the differences of the primary endpoint, if the study named one, as sentences.

    `targets` are titles: those to say the differences of; default: all.
    """
    compare = artefacts.study.compare
    if not compare or not compare.endpoint:
        return []
    rows = [*endpoint_rows(artefacts, only=compare.endpoint)]
    return _sentences(compare.endpoint, rows, targets)


def published_primary_texts(study: Study, targets: Sequence[str]) -> list[str]:
    """Return the same sentences from the published table, if it is there."""
    path = Path(paths.TABLE.format(study=study.name, table="endpoints", suffix="csv"))
    if not study.compare or not (primary := study.compare.endpoint) or not path.exists():
        return []
    rows = []
    for cells in read_csv(path, ["Model", "Method", "Endpoint"]):
        if PRIMARY not in cells["Endpoint"]:
            continue
        gaps = {}
        for target in targets:
            ends = ("", ", low", ", high", ", p")
            numbers = [cells.get(f"{target} minus it{end}") for end in ends]
            value, low, high, p_value = (nan if number is None else number for number in numbers)
            if isfinite(value):
                gaps[target] = Gap(Interval(value, low, high), p_value, nan, nan)
        rows.append(EndpointRow(cells["Model"], primary, cells["Method"], [], gaps))
    return _sentences(primary, rows, targets)


def _sentences(
    primary: str, rows: Sequence[EndpointRow], targets: Sequence[str] | None
) -> list[str]:
    """Return a sentence for each two methods: over all base models, if there are several."""
    texts: dict[tuple[str, frozenset[str]], str] = {}
    for row in [row for row in rows if row.model == ALL] or rows:
        for target, gap in row.gaps.items():
            if targets is not None and target not in targets:
                continue
            tested = f", p = {gap.p_value:.3f}" * isfinite(gap.p_value)
            what = f"{target} minus {row.title} {with_interval(gap.value, '+.3g')}{tested}"
            key = (row.model, frozenset((target, row.title)))
            texts.setdefault(key, f"Primary endpoint, {ENDPOINTS[primary][0]}, {row.model}: {what}")
    return [*texts.values()]


def gap(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Gap:
    """Return the difference of a target and another method, over pairs of equal base model and seed.

    Values are by base model, then by seed; for one base model by seed, each in a list of its own.
    """
    gaps = [[a - b for a, b in zip(*unit, strict=True)] for unit in zip(ours, theirs, strict=True)]
    pairs = [pair for unit in gaps for pair in unit]
    over_models = mean_of_seeds([mean_of_seeds(unit).value for unit in gaps])
    return Gap(mean_of_seeds(pairs), _exact(pairs), detectable_difference(pairs), over_models)


def _exact(pairs: Sequence[float]) -> float:
    """Return the two-sided p-value of the exact test over all signs; nan with one pair or too many."""
    # All signs are counted where there are no more of them than resamples.
    count = 2 ** len(pairs)
    if len(pairs) < 2 or count > EXACT or not all(map(isfinite, pairs)):
        return nan
    result = permutation_test(
        (pairs,), np.mean, permutation_type="samples", n_resamples=count, rng=0
    )
    return float(result.pvalue)


def _mean(row: EndpointRow) -> Interval:
    unit = ENDPOINTS[row.endpoint][0].rpartition(" ")[2]
    return mean_of_seeds(row.values, *LIMITS.get(unit, ()))


def make(artefacts: Artefacts) -> Table:
    """Return the table of endpoints, a row for each model, endpoint and method."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None

    def named(row: EndpointRow) -> str:
        return ENDPOINTS[row.endpoint][0] + PRIMARY * (row.endpoint == primary)

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
            estimated("Mean", _mean),
            *(column for t in targets for column in _differences(study.title(t), pooled)),
        ],
        rows=[*endpoint_rows(artefacts)],
        caption="Endpoints: one number for each training, with 95 % intervals over training seeds "
        "(Student's t). Differences are paired by base model and seed; p: exact test over the signs of all "
        "pairs. Detectable: difference that Student's interval tells from 0 with a probability of 80 %.",
        notes=[
            which,
            "If some trainings collapse, these intervals contain the truth less often than in 95 % of the "
            "cases: docs/evaluation.md. With n pairs the exact p is at least 2 / 2^n: 0.25 with three, "
            "0.125 with four, 0.031 with six, 0.008 with eight.",
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
