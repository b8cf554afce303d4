"""Accuracy of methods that differ in one argument of their selection."""

from itertools import product
from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.curves import accuracy_label
from stapo.suite.analysis.main_table import accuracies, shown_benchmarks
from stapo.suite.evaluation.statistics import AVERAGE
from stapo.suite.exhibits import Exhibit
from stapo.suite.study.study import families

EXHIBIT = Exhibit(order=80, title="Ablation and sensitivity", needs="ablation")
LABELS = {
    "tau_p": "τ_p",
    "quantile": "q, quantile of the entropies",
    "fraction": "share of kept tokens",
}


def make(artefacts: Artefacts) -> Any:
    """Return accuracy over each argument: a row of panels per argument and model, a panel per decoding."""
    study, benchmarks, panels = artefacts.study, shown_benchmarks(artefacts.study), []
    ablations = families(study)
    group = charts.colours(family.title for family in ablations)
    y = charts.y_axis(accuracy_label(study, benchmarks))
    arguments = dict.fromkeys(family.argument for family in ablations)
    for argument, model, decoding in product(arguments, study.run.models, study.run.decodings):
        known = accuracies(artefacts, decoding, tuple(benchmarks))
        x = charts.x_axis(LABELS.get(argument, argument), log=argument == "tau_p")
        rows = [
            {"x": value, "group": family.title, "text": study.title(name)}
            | charts.interval(known[model, name].values[AVERAGE])
            for family in ablations
            if family.argument == argument
            for value, name in family.members.items()
        ]
        layers = charts.lines(rows, x, y, group)
        if "justrl" in study.run.methods:
            value = known[model, "justrl"].values[AVERAGE].value
            layers += charts.rule(value, study.title("justrl"))
        panels.append(charts.panel(layers, f"{model}, {study.decodings[decoding].title}"))
    caption = (
        "Methods that differ only in one argument of their token selection, by kind of mask. Bands are 95 % "
        "intervals over problems and training seeds. Dotted: JustRL, which silences nothing. Table "
        "stability has the entropies."
    )
    return charts.grid(panels, caption, columns=len(study.run.decodings))
