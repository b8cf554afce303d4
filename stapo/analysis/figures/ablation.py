"""Accuracy and stability of methods that differ in one argument of their selection."""

from collections.abc import Mapping, Sequence
from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import AVERAGE, accuracies, shown_benchmarks
from stapo.analysis.curves import accuracy_label
from stapo.analysis.tables.stability import ONE_SEED, entropies, spread_of_seeds
from stapo.evaluation.statistics import Interval
from stapo.exhibits import Exhibit
from stapo.study.study import Family, families

EXHIBIT = Exhibit(order=80, title="Ablation and sensitivity", needs="ablation")
LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}


def make(artefacts: Artefacts) -> Any:
    """Return accuracy and entropy stability over each argument: a row of panels per argument and size."""
    study = artefacts.study
    found = families(study)
    group = charts.colours(family.title for family in found)
    panels = [
        panel
        for argument in dict.fromkeys(family.argument for family in found)
        for size in study.run.sizes
        for panel in _row(artefacts, [f for f in found if f.argument == argument], size, group)
    ]
    caption = (
        "Methods that differ only in one argument of their token selection, by kind of mask. Bands are 95 % "
        "intervals: of accuracies over problems and training seeds, of the spread of the entropy "
        "(docs/stability.md) over training seeds. Dotted: JustRL, which silences nothing."
    )
    if len(study.run.seeds) == 1:
        caption += f" {ONE_SEED}"
    return charts.grid(panels, caption, columns=len(study.run.decodings) + 1)


def _row(
    artefacts: Artefacts, family: Sequence[Family], size: str, group: Mapping[str, Any]
) -> list[Any]:
    """Return the panels of one argument at one size: accuracy by decoding, then entropy stability."""
    study, argument = artefacts.study, family[0].argument
    x = charts.x_axis(LABELS.get(argument, argument), log=argument == "tau_p")
    benchmarks = shown_benchmarks(study)
    accuracy = charts.y_axis(accuracy_label(study, benchmarks))
    spread = charts.y_axis("spread of the entropy [%]", low=0)

    def panel(title: str, y: Any, found: Mapping[str, Interval]) -> Any:
        rows = [
            {"x": value, "group": one.title, "text": study.title(name), **_fields(found[name])}
            for one in family
            for value, name in one.members.items()
        ]
        layers = charts.lines(rows, x, y, group)
        if "justrl" in found:
            layers += charts.rule(found["justrl"].value, study.title("justrl"))
        return charts.panel(layers, f"{size}, {title}")

    panels = []
    for decoding in study.run.decodings:
        known = accuracies(artefacts, decoding, tuple(benchmarks)).cells
        of = {name: known[size, name][AVERAGE] for name in study.run.methods}
        panels.append(panel(study.decodings[decoding].title, accuracy, of))
    spreads = {n: spread_of_seeds(entropies(artefacts, size, n)) for n in study.run.methods}
    return [*panels, panel("stability", spread, spreads)]


def _fields(found: Interval) -> dict[str, float]:
    # Of one seed, a spread has no interval.
    return charts.interval(found) if found.low == found.low else {"y": found.value}
