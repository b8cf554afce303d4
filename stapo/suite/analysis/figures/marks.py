"""What masks find: the share of wrong tokens among the silenced ones, and of all wrong ones that they are."""

from typing import Any

from stapo.suite.analysis import charts
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.recorded import QUADRANTS, notes_of, recorded
from stapo.suite.analysis.tables.marks import TOUCHED, WRONG, Row, rows_of
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.exhibits import Exhibit

EXHIBIT = Exhibit(order=95, title="What the masks find", needs="marks")
SHOWN = {
    TOUCHED: "touched by the method",
    f"A > 0, {QUADRANTS[0]}": "of low probability and entropy, A > 0",
    "all with A > 0": "any token with A > 0",
}
"""Row of table marks -> its name in the legend."""


def make(artefacts: Artefacts) -> Any:
    """Return precision and recall of each method's mask on wrong tokens: two panels per model."""
    recordings, group, panels = recorded(artefacts), charts.colours(SHOWN.values()), []
    for model in dict.fromkeys(recording.model for recording in recordings):
        among = [
            row for recording in recordings for row in rows_of(recording) if row.model == model
        ]
        rows = [row for row in among if row.name in SHOWN and row.mask.any()]
        precision = [_bar(row, row.share_of(*WRONG)) for row in rows]
        # Of all tokens with A > 0, every wrong one with A > 0 is one.
        recall = [_bar(row, row.found()) for row in rows if row.mask is not row.whole]
        labelled = {"wrong tokens among them [%]": precision, "of all wrong tokens [%]": recall}
        panels += [
            charts.panel(charts.bars(b, label, group), model) for label, b in labelled.items()
        ]
    caption = (
        "Recorded tokens that are wrong (detours and slips, by the marks of the builder) in what masks "
        "select, with 95 % intervals. Left the precision of a mask, right its recall: of what a method "
        "touches among all tokens, otherwise among tokens with A > 0. Table marks has all classes. "
        f"{' '.join(notes_of(recordings))}"
    )
    return charts.grid(panels, caption, columns=2)


def _bar(row: Row, share: Interval) -> dict[str, Any]:
    return {"y": row.title, "group": SHOWN[row.name], **charts.interval(share, 100, axis="x")}
