"""Ablation and sensitivity: methods that differ in one argument of their token selection."""

from dataclasses import dataclass

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import accuracies, shown_benchmarks
from stapo.analysis.stability import entropies, spread_of_seeds
from stapo.evaluation.statistics import Interval
from stapo.study.study import Family

LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A method of a family at a size."""

    size: str
    argument: str
    mask: str
    value: float
    """Of the argument."""
    title: str
    accuracy: dict[str, Interval]
    """Decoding -> accuracy in percent."""
    spread: Interval
    """Of the entropy, in percent."""


def points(artefacts: Artefacts, family: Family, size: str) -> list[Point]:
    """Return the methods of a family at a size, by the value of the argument."""
    study = artefacts.study
    return [
        Point(
            size=size,
            argument=family.argument,
            mask=family.title,
            value=value,
            title=study.method(name).title,
            accuracy={d: accuracy_of(artefacts, d, size, name) for d in study.run.decodings},
            spread=spread_of(artefacts, size, name),
        )
        for value, name in family.members.items()
    ]


def accuracy_of(artefacts: Artefacts, decoding: str, size: str, method: str) -> Interval:
    """Return the accuracy of a method in percent, over the benchmarks of the figures."""
    benchmarks = tuple(shown_benchmarks(artefacts.study))
    return accuracies(artefacts, decoding, benchmarks).values[size, method]


def spread_of(artefacts: Artefacts, size: str, method: str) -> Interval:
    """Return the spread of the entropy of a method in percent."""
    return spread_of_seeds(entropies(artefacts, size, method))
