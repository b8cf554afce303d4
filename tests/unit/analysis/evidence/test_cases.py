"""Cases and the tokens of the report: bounded, deterministic, by a rule."""

import json

import numpy as np
import pandas as pd
import pytest

from stapo.analysis.evidence.cases import cases, context_of, literal, top_text
from stapo.analysis.evidence.estimates import sample_of
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.analysis.evidence.tokens import PLACE, token_rows
from stapo.methods import STAPO


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


def test_tokens_are_drawn_in_proportion_to_their_weights():
    places = np.arange(4000)
    frame = pd.DataFrame(
        {"seed": 0, "step": 1, "prompt": places, "response": 0, "position": 0, "kind": "other",
         "weight": np.where(places % 2, 3.0, 1.0)}
    )  # fmt: skip
    one = Recorded(
        "8B", "m", "M", STAPO.arguments, True, frame, sample_of([frame], 4000), np.zeros(4000)
    )
    drawn = one.drawn(np.ones(4000, bool))
    # Three of four draws, with a standard error of 0.022.
    assert (drawn[:400] % 2).mean() == pytest.approx(0.75, abs=0.06)
    assert sorted(drawn) == places.tolist()


@pytest.mark.parametrize(("most", "number"), [(0, 0), (25, 24), (10**7, None)])
def test_tokens_of_the_report_are_a_bounded_number_of_every_training(several, most, number):
    rows = token_rows(several, most)
    expected = sum(len(one.frame) for one in recorded(several)) if number is None else number
    assert len(rows) == expected
    json.dumps(rows, allow_nan=False)
    each = pd.DataFrame(rows, columns=["size", "method", "seed", "kind"])
    assert each.groupby(["size", "method", "seed"]).size().nunique() <= 1 or number is None
    assert len(each.drop_duplicates()) == (0 if most == 0 else 24 if number else 36)


def test_the_report_says_of_a_token_what_was_recorded(complete):
    artefacts, truth = complete
    titles = {"STAPO": truth["stapo"], "JustRL": truth["justrl"]}
    tokens = {title: frame.set_index(PLACE) for title, frame in titles.items()}
    rows = token_rows(artefacts, 100)
    assert [row["step"] for row in rows[:50]] == sorted(row["step"] for row in rows[:50])
    for one in rows:
        found = tokens[one["method"]].loc[tuple(one[name] for name in PLACE)]
        assert (one["token"].replace("\\n", "\n"), one["kind"]) == (found.token, found.kind)
        assert one["kept"] == found.kept
        assert one["probability"] == pytest.approx(found.probability, rel=1e-3)
        assert one["gradient_norm"] == pytest.approx(found.gradient_norm_sq**0.5, rel=1e-3)
        assert len(one["top_tokens"]) == len(one["top_probabilities"]) == 5
        assert (one["category"] is None) == (found.kind == "other")
        assert (one["quadrant"] is None) == (found.advantage <= 0)


def test_white_space_is_visible():
    assert literal(" \n\tso ") == "\u2423\u21b5\u21e5so\u2423"
    assert top_text([" a", "b"], np.array([0.5, 0.251], dtype=np.float32)) == "\u2423a 50, b 25.1"
    assert top_text(None, None) == ""
    assert context_of("a" * 61, "x", "\nb") == "\u2026" + "a" * 60 + "\u27e6x\u27e7\u21b5b"
