"""What silenced tokens really are: counts of a world whose truth is known."""

import pytest
from synthetic_tokens import ALL, write_study

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.recorded import recorded
from stapo.suite.analysis.figures import marks as figures
from stapo.suite.analysis.tables.marks import TOUCHED, make, rows_of
from stapo.suite.models.marked import DETOUR, MARKS, SLIP


def test_precision_and_recall_are_counts_if_every_token_was_recorded(study, tmp_path):
    truth = [*write_study(tmp_path, study, ALL, MARKS, slips=0.08).values()]
    artefacts = Artefacts(study, tmp_path)
    for one, frame in zip(recorded(artefacts), truth, strict=True):
        positive, wrong = frame["advantage"] > 0, frame["mark"].isin([DETOUR, SLIP])
        silenced = frame["kind"] == "silenced"
        rows = rows_of(one)
        assert rows[0].share_of(DETOUR, SLIP).value == pytest.approx(wrong[positive].mean())
        mask = rows[1]  # The first quadrant: what S2T silences.
        assert mask.share_of(DETOUR, SLIP).value == pytest.approx(wrong[silenced].mean())
        found = (wrong & silenced).sum() / (wrong & positive).sum()
        assert mask.found().value == pytest.approx(found)
        assert sum(mask.share_of(mark).value for mark in MARKS) == pytest.approx(1)
        assert [row.name for row in rows[10:]] == [TOUCHED] * (one.method == "stapo")
        if one.method == "stapo":
            assert rows[-1].found().value == pytest.approx((wrong & silenced).sum() / wrong.sum())
    grid = make(artefacts)
    assert len(grid.rows) == 21
    assert all(column.shown(grid.rows[1]) for column in grid.columns)
    assert len(figures.make(artefacts).to_dict()["concat"]) == 2
