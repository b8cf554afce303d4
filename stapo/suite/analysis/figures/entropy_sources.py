"""Predicted change of the entropy by the tokens that bring it, and what clip and selection remove."""

from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import ALL, Artefacts
from stapo.suite.analysis.evidence.recorded import notes_of, with_pooled
from stapo.suite.analysis.tables.entropy_sources import sources
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=35, title="Why the entropy moves")


def make(artefacts: Artefacts) -> Any:
    """Return bars by source and method: a panel per model, or one of all base models if they have a row."""
    recordings = with_pooled(artefacts)
    recordings = (
        tuple(recording for recording in recordings if recording.model == ALL) or recordings
    )
    group = charts.colours(recording.title for recording in recordings)
    panels = []
    for model in dict.fromkeys(recording.model for recording in recordings):
        rows = [
            {"y": row.name, "group": row.title, **charts.interval(row.change, axis="x")}
            for recording in recordings
            if recording.model == model
            for row in sources(recording, artefacts.study)
        ]
        layers = charts.bars(rows, "predicted change per token", group)
        panels.append(charts.panel([*layers, *charts.rule(0.0, vertical=True)], model, height=360))
    caption = (
        "Change of the entropy that the lemma predicts for an update, up to a positive factor, by the tokens "
        "that bring it, with 95 % intervals. Tokens that are clipped or not kept have no gradient: they "
        "show what was removed. Table entropy_sources has the numbers. "
        + " ".join(notes_of(recordings))
    )
    return charts.grid(panels, caption, columns=2)
