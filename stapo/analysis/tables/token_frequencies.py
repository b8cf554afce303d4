"""The most frequent silenced and retained candidates."""

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.frequencies import KINDS, SHOWN, Frequency, frequencies, paper_text
from stapo.analysis.evidence.recorded import notes_of, recorded
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=70, title="Most frequent silenced and retained tokens")
COLUMNS: list[Column[Frequency]] = [
    SIZE,
    METHOD,
    Column("Candidates", lambda row: row.kind, text=True),
    Column("Rank", lambda row: row.rank),
    Column("Token", lambda row: row.token, text=True),
    Column("Recorded", lambda row: row.share.records),
    estimated("Share [%]", lambda row: row.share, unit=100),
    Column("In the paper's cloud", lambda row: row.cloud, text=True),
]


def make(artefacts: Artefacts) -> Table:
    """Return the table of the most frequent silenced and retained tokens."""
    found = recorded(artefacts)
    return Table(
        columns=COLUMNS,
        rows=[row for one in found for kind in KINDS for row in frequencies(one, kind)],
        caption=f"The {SHOWN} most frequent tokens among the candidates that S2T silences, or would "
        "silence, and among those that it retains: share in these candidates, with 95 % intervals. White "
        "space is shown by signs.",
        notes=[paper_text(), *notes_of(found)],
    )
