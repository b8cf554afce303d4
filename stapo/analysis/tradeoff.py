"""Charts of accuracy and entropy together: Pareto, and JustRL against JustRL-FullMask."""

from collections.abc import Iterator
from dataclasses import replace

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import of_trainings, shown_benchmarks
from stapo.analysis.charts import Axis, Chart, Panel, Series
from stapo.analysis.curves import (
    STEPS,
    accuracies,
    accuracy_label,
    lines_of,
    over_steps,
    shares_of,
    smoothing,
    values_of,
)
from stapo.analysis.stability import entropies, late_curve, warm_up_steps
from stapo.evaluation.statistics import Interval
from stapo.exhibits import FIGURES
from stapo.study import TrainingRun

FULL_MASK = ("justrl", "full-mask")
SPREAD = "spread of the entropy [%], less is more stable"


def pareto(artefacts: Artefacts) -> Chart:
    """Return accuracy against entropy stability: a panel per decoding and size, a point per training."""
    study, benchmarks = artefacts.study, shown_benchmarks(artefacts.study)
    panels = []
    for decoding in study.run.decodings:
        accuracy = of_trainings(artefacts, decoding, benchmarks)
        panels += [
            Panel(
                title=f"{size}, {study.decodings[decoding].title}",
                x=Axis(label=SPREAD, low=0),
                y=Axis(label=accuracy_label(study, benchmarks)),
                series=[
                    _points(artefacts, TrainingRun(size, method, 0), accuracy)
                    for method in study.run.methods
                ],
            )
            for size in study.run.sizes
        ]
    return Chart(
        groups=artefacts.titles(),
        panels=panels,
        columns=len(study.run.sizes),
        caption=(
            "Accuracy of every training, with 95 % intervals over problems, against the stability of its "
            f"entropy: standard deviation / mean of the {smoothing(study.training.steps)}, without the "
            f"first {warm_up_steps(study)} (docs/stability.md). Further up and further left is better."
        ),
    )


def _points(
    artefacts: Artefacts, run: TrainingRun, accuracy: dict[TrainingRun, Interval]
) -> Series:
    """Return a point for each seed of the method and size of a training."""
    study, title = artefacts.study, artefacts.study.method(run.method).title
    found = [accuracy[TrainingRun(run.size, run.method, seed)] for seed in study.run.seeds]
    return Series(
        name=title,
        group=title,
        kind="points",
        x=[100 * one.spread for one in entropies(artefacts, run.size, run.method)],
        y=[one.value for one in found],
        low=[one.low for one in found],
        high=[one.high for one in found],
        text=[f"{title}, seed {seed}" for seed in study.run.seeds],
    )


def full_mask(artefacts: Artefacts) -> Chart:
    """Return entropy and accuracy of JustRL and JustRL-FullMask over steps, on two axes: a panel per size.

    Without intermediate checkpoints there is only the entropy.
    """
    study, curve = artefacts.study, late_curve(artefacts.study)
    second = Axis(label=accuracy_label(study, curve[1])) if curve else None
    about = f" and accuracy (dashed, {study.decodings[curve[0]].title})" if curve else ""
    panels = [
        Panel(
            title=size,
            x=STEPS,
            y=Axis(label=FIGURES["entropy"].label, low=0),
            second=second,
            series=[*_entropies(artefacts, size), *_accuracies(artefacts, size)],
        )
        for size in study.run.sizes
    ]
    return Chart(
        groups=artefacts.titles(),
        panels=panels,
        caption=f"Policy entropy{about} of JustRL and of JustRL-FullMask, which silences every token of low "
        f"probability in correct answers. {lines_of(study)}",
    )


def _entropies(artefacts: Artefacts, size: str) -> Iterator[Series]:
    study = artefacts.study
    for method in FULL_MASK:
        title = study.method(method).title
        values = {
            seed: values_of(artefacts, TrainingRun(size, method, seed), "entropy")
            for seed in study.run.seeds
        }
        for series in over_steps(values, title):
            yield replace(series, name=f"{title}: entropy")


def _accuracies(artefacts: Artefacts, size: str) -> Iterator[Series]:
    if (curve := late_curve(artefacts.study)) is None:
        return
    titles = [artefacts.study.method(name).title for name in FULL_MASK]
    for series in accuracies(artefacts.study, size, shares_of(artefacts, *curve)):
        if series.group in titles:
            yield replace(series, name=f"{series.group}: accuracy", second=True, dashed=True)
