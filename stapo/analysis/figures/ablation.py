"""Accuracy of methods that differ in one argument of their selection."""

from collections.abc import Mapping, Sequence
from typing import Any

from stapo.analysis import charts
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import accuracies, shown_benchmarks
from stapo.analysis.curves import accuracy_label
from stapo.evaluation.statistics import AVERAGE
from stapo.exhibits import Exhibit
from stapo.study.study import Family, families

EXHIBIT = Exhibit(order=80, title="Ablation and sensitivity", needs="ablation")
LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}


def make(artefacts: Artefacts) -> Any:
    """Return accuracy over each argument: a row of panels per argument and size, a panel per decoding."""
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
        "intervals over problems and training seeds. Dotted: JustRL, which silences nothing. Table "
        "`stability` has the entropies."
    )
    return charts.grid(panels, caption, columns=len(study.run.decodings))


def _row(
    artefacts: Artefacts, family: Sequence[Family], size: str, group: Mapping[str, Any]
) -> list[Any]:
    """Return the panels of one argument at one size."""
    study, argument, benchmarks = (
        artefacts.study,
        family[0].argument,
        shown_benchmarks(artefacts.study),
    )
    x = charts.x_axis(LABELS.get(argument, argument), log=argument == "tau_p")
    y, panels = charts.y_axis(accuracy_label(study, benchmarks)), []
    for decoding in study.run.decodings:
        known = accuracies(artefacts, decoding, tuple(benchmarks))
        found = {name: known[size, name].values[AVERAGE] for name in study.run.methods}
        rows = [
            {"x": value, "group": one.title, "text": study.title(name)}
            | charts.interval(found[name])
            for one in family
            for value, name in one.members.items()
        ]
        layers = charts.lines(rows, x, y, group)
        if "justrl" in found:
            layers += charts.rule(found["justrl"].value, study.title("justrl"))
        panels.append(charts.panel(layers, f"{size}, {study.decodings[decoding].title}"))
    return panels
