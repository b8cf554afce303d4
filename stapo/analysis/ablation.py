"""Ablation and sensitivity: methods that differ in one argument of their token selection."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import accuracies, shown_benchmarks
from stapo.analysis.charts import Axis, Chart, Line, Panel, Series
from stapo.analysis.curves import accuracy_label
from stapo.analysis.stability import ONE_SEED, entropies, spread_of_seeds
from stapo.evaluation.statistics import Interval
from stapo.study import Study
from stapo.study.families import Family, families

LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}
LOGARITHMIC = {"tau_p"}
REFERENCE = "justrl"
"""Method that silences nothing: a horizontal line, if the study has it."""


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
    """Return the methods of a family at a size, by the value of the argument.

    Raises:
        DamagedFileError: metrics are missing, damaged or incomplete.
        StaleScoreError: as for `read_scores`.
    """
    return [
        Point(
            size=size,
            argument=family.argument,
            mask=family.title,
            value=value,
            title=artefacts.study.method(method).title,
            accuracy={
                decoding: _accuracy(artefacts, decoding, size, method)
                for decoding in artefacts.study.run.decodings
            },
            spread=_spread(artefacts, size, method),
        )
        for value, method in family.members.items()
    ]


def _accuracy(artefacts: Artefacts, decoding: str, size: str, method: str) -> Interval:
    benchmarks = tuple(shown_benchmarks(artefacts.study))
    return accuracies(artefacts, decoding, benchmarks).values[size, method]


def _spread(artefacts: Artefacts, size: str, method: str) -> Interval:
    return spread_of_seeds(entropies(artefacts, size, method))


def chart(artefacts: Artefacts) -> Chart:
    """Return accuracy and entropy stability over each argument: a row of panels per argument and size."""
    study = artefacts.study
    found = families(study)
    arguments = dict.fromkeys(family.argument for family in found)
    panels = [
        panel
        for argument in arguments
        for size in study.run.sizes
        for panel in _panels(artefacts, [f for f in found if f.argument == argument], size)
    ]
    seeds = "" if len(study.run.seeds) > 1 else " " + ONE_SEED
    return Chart(
        groups=[*dict.fromkeys(family.title for family in found)],
        panels=panels,
        columns=len(study.run.decodings) + 1,
        share_y=False,
        caption="Methods that differ only in one argument of their token selection, by kind of mask. Bands "
        "are 95 % intervals: of accuracies over problems and training seeds, of the spread of the entropy "
        f"(docs/stability.md) over training seeds. Dotted: JustRL, which silences nothing.{seeds}",
    )


def _panels(artefacts: Artefacts, found: Sequence[Family], size: str) -> list[Panel]:
    """Return the panels of one argument at one size: accuracy by decoding, then entropy stability."""
    study, argument = artefacts.study, found[0].argument
    lines = [points(artefacts, family, size) for family in found]
    x = Axis(label=LABELS.get(argument, argument), log=argument in LOGARITHMIC)
    panels = []
    for decoding in study.run.decodings:
        panels.append(
            Panel(
                title=f"{size}, {study.decodings[decoding].title}",
                x=x,
                y=Axis(label=accuracy_label(study, shown_benchmarks(study))),
                series=[_line(line, [one.accuracy[decoding] for one in line]) for line in lines],
                lines=[
                    Line(value=_accuracy(artefacts, decoding, size, name).value, label=title)
                    for name, title in _reference(study).items()
                ],
            )
        )
    stability = Panel(
        title=f"{size}, stability",
        x=x,
        y=Axis(label="spread of the entropy [%]", low=0),
        series=[_line(line, [one.spread for one in line]) for line in lines],
        lines=[
            Line(value=_spread(artefacts, size, name).value, label=title)
            for name, title in _reference(study).items()
        ],
    )
    return [*panels, stability]


def _reference(study: Study) -> dict[str, str]:
    """Return name and title of the method of the horizontal line, if the study has it."""
    return {n: study.method(n).title for n in study.run.methods if n == REFERENCE}


def _line(line: Sequence[Point], values: Sequence[Interval]) -> Series:
    intervals = all(isfinite(one.low) for one in values)
    return Series(
        name=line[0].mask,
        x=[one.value for one in line],
        y=[one.value for one in values],
        low=[one.low for one in values] if intervals else None,
        high=[one.high for one in values] if intervals else None,
        text=[one.title for one in line],
    )
