"""Accuracy and stability of methods that differ in one argument of their selection."""

from collections.abc import Iterator, Mapping
from typing import Any

from stapo.analysis import charts
from stapo.analysis.ablation import LABELS, Point, accuracy_of, points, spread_of
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.averages import shown_benchmarks
from stapo.analysis.curves import accuracy_label
from stapo.analysis.stability import ONE_SEED
from stapo.evaluation.statistics import Interval
from stapo.exhibits import Exhibit
from stapo.study.study import families

EXHIBIT = Exhibit(order=80, title="Ablation and sensitivity", needs="ablation")


def make(artefacts: Artefacts) -> Any:
    """Return accuracy and entropy stability over each argument: a row of panels per argument and size."""
    study = artefacts.study
    found = families(study)
    group = charts.colours(family.title for family in found)
    panels: list[Any] = []
    for argument in dict.fromkeys(family.argument for family in found):
        for size in study.run.sizes:
            own = (points(artefacts, one, size) for one in found if one.argument == argument)
            members = [point for family in own for point in family]
            panels += _panels(artefacts, argument, members, size, group)
    caption = (
        "Methods that differ only in one argument of their token selection, by kind of mask. Bands are 95 % "
        "intervals: of accuracies over problems and training seeds, of the spread of the entropy "
        "(docs/stability.md) over training seeds. Dotted: JustRL, which silences nothing."
    )
    if len(study.run.seeds) == 1:
        caption += f" {ONE_SEED}"
    return charts.grid(panels, caption, columns=len(study.run.decodings) + 1)


def _panels(
    artefacts: Artefacts, argument: str, members: list[Point], size: str, group: Mapping[str, Any]
) -> Iterator[Any]:
    """Yield the panels of one argument at one size: accuracy by decoding, then entropy stability."""
    study = artefacts.study
    x = charts.x_axis(LABELS.get(argument, argument), log=argument == "tau_p")
    justrl = "justrl" if "justrl" in study.run.methods else None

    def panel(title: str, y: Any, found: list[Interval], without: Interval | None) -> Any:
        rows = [_row(one, value) for one, value in zip(members, found, strict=True)]
        layers = charts.lines(rows, x, y, group)
        if without:
            layers += charts.rule(without.value, study.title("justrl"))
        return charts.panel(layers, f"{size}, {title}")

    accuracy = charts.y_axis(accuracy_label(study, shown_benchmarks(study)))
    for name in study.run.decodings:
        without = accuracy_of(artefacts, name, size, justrl) if justrl else None
        found = [one.accuracy[name] for one in members]
        yield panel(study.decodings[name].title, accuracy, found, without)
    spread = charts.y_axis("spread of the entropy [%]", low=0)
    without = spread_of(artefacts, size, justrl) if justrl else None
    yield panel("stability", spread, [one.spread for one in members], without)


def _row(one: Point, found: Interval) -> dict[str, Any]:
    row = {"x": one.value, "y": found.value, "group": one.mask, "text": one.title}
    # Of one seed, a spread has no interval.
    return row | {"low": found.low, "high": found.high} if found.low == found.low else row
