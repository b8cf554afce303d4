"""What the silenced tokens really are, in a tiny world that knows of every token whether it is right."""

from dataclasses import dataclass

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import Mask, share
from stapo.suite.analysis.evidence.recorded import (
    Recorded,
    Tokens,
    notes_of,
    quadrants,
    with_pooled,
)
from stapo.suite.analysis.formats import METHOD, MODEL, NAME, RECORDED, Column, Table, estimated
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.exhibits import Exhibit
from stapo.suite.models.marked import DETOUR, MARKS, SLIP

EXHIBIT = Exhibit(order=42, title="What the tokens really are", needs="marks")
WRONG = (DETOUR, SLIP)
"""Marks of tokens that are wrong: in right answers, they are what the paper calls spurious."""
TOUCHED = "what the method silences, weights or penalises"


@dataclass(frozen=True)
class Row(Tokens):
    """Some tokens of one method and model."""

    def share_of(self, *marks: str) -> Interval:
        """Return the share of some marks among these tokens."""
        return share(self.sample, self.mask & marked(self.recording, *marks), self.mask)

    def found(self) -> Interval:
        """Return the share of the wrong tokens of the whole that are among these: the recall."""
        wrong = self.whole & marked(self.recording, *WRONG)
        return share(self.sample, wrong & self.mask, wrong)


def marked(recording: Recorded, *marks: str) -> Mask:
    """Return which recorded tokens have one of some marks."""
    mask: Mask = recording.frame["mark"].isin(marks).to_numpy(dtype=bool)
    return mask


def rows_of(recording: Recorded) -> list[Row]:
    """Return the rows of a method: all tokens and quadrants of each sign of A, and what it touches."""
    rows = []
    for sign in ("> 0", "< 0"):
        same_sign = quadrants(recording, (sign,))
        rows.append(Row(recording, f"all with A {sign}", same_sign[0].whole, same_sign[0].whole))
        rows += [Row(recording, f"A {sign}, {q.name}", q.mask, q.whole) for q in same_sign]
    touched: Mask = recording.frame["touched"].to_numpy(dtype=bool)
    if touched.any():
        rows.append(Row(recording, TOUCHED, touched, touched | ~touched))
    return rows


def _share(mark: str) -> Column[Row]:
    return estimated(f"{mark.capitalize()} [%]", lambda row: row.share_of(mark), unit=100)


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method and class of tokens."""
    recordings = with_pooled(artefacts)
    return Table(
        columns=[
            MODEL,
            METHOD,
            NAME,
            RECORDED,
            estimated("Wrong [%]", lambda row: row.share_of(*WRONG), unit=100),
            estimated("Of all wrong ones [%]", lambda row: row.found(), unit=100),
            *map(_share, MARKS),
        ],
        rows=[row for recording in recordings for row in rows_of(recording)],
        caption="What recorded tokens really are, by sign of the advantage, probability and entropy, with "
        "95 % intervals: the builder of this world knows of every token whether it is right.",
        notes=[
            "Wrong: slips and detours. Of the first quadrant with A > 0, which S2T silences, or would "
            "silence, the share of wrong tokens is the precision of its mask on tokens that are wrong in "
            "right answers, and their share of all wrong ones with A > 0 its recall. The row of all tokens "
            "with A > 0 is what silencing at random would find.",
            "Sound: what question and earlier tokens ask for. Word: says nothing. Detour: wrong, and "
            "repeated, or a needless repetition. Slip: wrong, and not repeated. Unread: the form is lost.",
            *notes_of(recordings),
        ],
    )
