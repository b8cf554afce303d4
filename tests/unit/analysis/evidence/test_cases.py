"""Cases: bounded, deterministic, by a rule."""

import numpy as np

from stapo.analysis.evidence.recorded import recorded
from stapo.analysis.tables.cases import cases, context_of, literal, top_text


def test_cases_are_the_largest_norms_and_others_at_random(artefacts):
    for one in recorded(artefacts):
        rows = list(cases(one))
        norms = np.sort(one.norm[one.silenced])[::-1]
        assert [row.norm for row in rows[:3]] == norms[:3].tolist()
        assert {row.chosen for row in rows[3:]} == {"random"}
        assert len({(row.step, row.context, row.norm) for row in rows}) == len(rows)
        assert len(rows) == min(6, one.silenced.sum())
        assert all(row.probability < 0.002 and row.advantage > 0 for row in rows)
        assert {row.kept for row in rows} == {one.method == "justrl"}


def test_white_space_is_visible():
    assert literal(" \n\tso ") == "\u2423\u21b5\u21e5so\u2423"
    assert top_text([" a", "b"], np.array([0.5, 0.251], dtype=np.float32)) == "\u2423a 50, b 25.1"
    assert top_text(None, None) == ""
    assert context_of("a" * 61, "x", "\nb") == "\u2026" + "a" * 60 + "\u27e6x\u27e7\u21b5b"
