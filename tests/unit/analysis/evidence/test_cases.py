"""Cases and the choice for the token browser: bounded, deterministic, by a rule."""

import json

import numpy as np
import pandas as pd
import pytest

from stapo.analysis.evidence.browser import token_choice
from stapo.analysis.evidence.cases import cases, context_of, drawn_in_order
from stapo.analysis.evidence.cells import literal, top_text
from stapo.analysis.evidence.estimates import sample_of
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.records.tokens import KINDS


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
    one = Recorded("8B", "m", "M", 0.002, frame, sample_of([frame], 4000), np.zeros(4000))
    first = drawn_in_order(one, places)[:400] % 2
    # Three of four draws, with a standard error of 0.022.
    assert first.mean() == pytest.approx(0.75, abs=0.06)
    assert sorted(drawn_in_order(one, places)) == places.tolist()


@pytest.mark.parametrize("limit", [0, 3000, 20_000, 10**7])
def test_the_choice_is_as_large_as_it_may_be(artefacts, limit):
    chosen = token_choice(artefacts, limit)
    size = len(json.dumps(chosen, ensure_ascii=False).encode())
    assert size <= max(limit, 2)
    # A record has at most 700 bytes here, and each of the two trainings may leave as much.
    assert size > limit - 1400 or len(chosen) == sum(len(o.frame) for o in recorded(artefacts))
    json.dumps(chosen, allow_nan=False)


def test_the_choice_has_all_kinds_of_every_training(several):
    chosen = token_choice(several, 60_000)
    found = {(one["size"], one["method"], one["seed"]) for one in chosen}
    assert len(found) == 12
    for key in found:
        mine = [one for one in chosen if (one["size"], one["method"], one["seed"]) == key]
        assert {one["kind"] for one in mine} == {*KINDS}
        assert [one["step"] for one in mine] == sorted(one["step"] for one in mine)


def test_what_the_choice_says_of_a_token_is_what_was_recorded(complete):
    artefacts, truth = complete
    place = ["step", "prompt", "response", "position"]
    titles = {"STAPO": truth["stapo"], "JustRL": truth["justrl"]}
    tokens = {title: frame.set_index(place) for title, frame in titles.items()}
    for one in token_choice(artefacts, 50_000):
        found = tokens[one["method"]].loc[tuple(one[name] for name in place)]
        assert (one["token"], one["kind"], one["kept"]) == (found.token, found.kind, found.kept)
        assert one["probability"] == pytest.approx(found.probability, rel=1e-3)
        assert one["gradient_norm"] == pytest.approx(found.gradient_norm_sq**0.5, rel=1e-3)
        assert one["top_tokens"] == found.top_tokens
        assert (one["category"] is None) == (found.kind == "other")
        assert (one["quadrant"] is None) == (found.advantage <= 0)


def test_white_space_is_visible():
    assert literal(" \n\tso ") == "\u2423\u21b5\u21e5so\u2423"
    assert top_text([" a", "b"], np.array([0.5, 0.251], dtype=np.float32)) == "\u2423a 50, b 25.1"
    assert top_text(None, None) == ""
    assert context_of("a" * 61, "x", "\nb") == "\u2026" + "a" * 60 + "\u27e6x\u27e7\u21b5b"
