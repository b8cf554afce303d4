"""Figures and cases of recorded tokens, and of quantiles, hold the numbers of the records."""

import numpy as np
import pytest
from drawn import caption, panels
from studies import outputs
from synthetic_tokens import write_tokens

from stapo.core.files import write_jsonl
from stapo.suite.analysis import quantities
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import MAX_POINTS, chart_of, image
from stapo.suite.analysis.evidence.recorded import NO_SILENCED, recorded
from stapo.suite.analysis.figures.token_frequencies import EXAMPLES, SHOWN, WORDS, kind_of
from stapo.suite.analysis.tables.cases import cases, context_of
from stapo.suite.evaluation.statistics import Interval

LETTERS = str.maketrans("01", "ab")


@pytest.mark.parametrize(("name", "number"), [("quadrants", 2), ("token_frequencies", 4)])
def test_every_kind_of_study_is_drawn(name, number, several, empty, without_candidates):
    for study, sizes in ((several, 2), (empty, 1), (without_candidates, 1)):
        chart = chart_of(study, name)
        found = panels(chart)
        assert len(found) == sizes * number
        assert sum(len(unit.rows) for panel in found for unit in panel.of("point")) <= MAX_POINTS
        assert image(chart)["svg"]
        if name == "token_frequencies":
            assert (NO_SILENCED in caption(chart)) == (study is not several)


def test_frequencies_are_those_of_the_tokens_if_all_were_recorded(complete):
    artefacts, truth = complete
    shown = iter(panels(chart_of(artefacts, "token_frequencies")))
    for one in recorded(artefacts):
        for kind in ("silenced", "retained"):
            frame = truth[one.method]
            counts = frame.loc[frame["kind"] == kind, "token"].value_counts()
            rows = next(shown).of("bar")[0].rows
            assert len(rows) == min(SHOWN, len(counts))
            shares = (100 * counts / counts.sum()).tolist()[: len(rows)]
            assert [row["x"] for row in rows] == pytest.approx(shares, rel=1e-5)
            assert all(row["low"] < row["x"] < row["high"] for row in rows)


def test_tokens_that_are_nearly_all_different_are_drawn_by_their_kinds(complete):
    artefacts, truth = complete
    paths = dict(zip(truth, outputs(artefacts.study, "train", "tokens.parquet"), strict=True))
    for name, frame in truth.items():
        frame["token"] = [f" {i:b}".translate(LETTERS) if i % 4 else str(i) for i in frame.index]
        write_tokens(artefacts.root / paths[name], frame)
    found = panels(chart_of(Artefacts(artefacts.study, artefacts.root), "token_frequencies"))
    for frame in truth.values():
        for kind in ("silenced", "retained"):
            tokens, panel = frame.loc[frame["kind"] == kind, "token"], found.pop(0)
            rows = {row["y"]: row for row in panel.of("bar")[0].rows}
            assert [*rows] == [*WORDS]
            numbers = tokens[tokens.str.isdigit()]
            assert rows["number"]["x"] == pytest.approx(100 * len(numbers) / len(tokens), rel=1e-5)
            assert rows["word"]["x"] + rows["number"]["x"] == pytest.approx(100, rel=1e-5)
            examples = [f'"{token}"' for token in sorted(numbers)[:EXAMPLES]]
            assert panel.of("text")[0].rows[0]["examples"] == ", ".join(examples)
            assert rows["special"]["examples"] == ""


def test_what_the_claim_on_gradients_rests_on_is_said(complete, monkeypatch):
    artefacts, _ = complete
    (usual,) = quantities.spurious_gradient(artefacts, "justrl")
    assert "logits" not in str(usual)
    settings = artefacts.study.interventions.model_copy(update={"gradient_tokens": 2})
    asked = artefacts.study.model_copy(update={"interventions": settings})
    artefacts = Artefacts(asked, artefacts.root)
    found = Interval(1.0, 0.5, 2.0)
    monkeypatch.setattr(quantities, "spurious_at_weights", lambda *_: ("Base", found))
    logits, weights = quantities.spurious_gradient(artefacts, "justrl")
    assert (logits.estimate, weights.estimate) == (usual.estimate, found)
    assert "at the logits of spurious tokens of JustRL" in logits.what
    assert "at all weights of spurious tokens of Base" in weights.what


def test_quantiles_have_a_panel_each_and_that_of_the_paper_is_marked(several):
    levels = {"0.5": 0.1, "0.8": 1.0, "0.95": 2.0}
    records = [
        {"step": step, "entropy_quantiles": {key: value * step for key, value in levels.items()}}
        for step in range(1, several.study.training.steps + 1)
    ]
    for path in outputs(several.study, "train", "metrics.jsonl"):
        write_jsonl(several.root / path, records)
    found = panels(chart_of(several, "entropy_quantiles"))
    assert len(found) == 6
    assert [panel.title for panel in found][:2] == [
        "small, 50th percentile",
        "small, 80th percentile (the level in the paper)",
    ]
    lines = found[1].lines(pale=True)
    assert [y for _, y in next(iter(lines.values()))] == [1.0, 2.0, 3.0, 4.0]
    assert {seed for _, seed in lines} == {*several.study.run.seeds}


def test_cases_are_the_largest_norms_and_others_at_random(complete):
    for one in recorded(complete[0]):
        rows = list(cases(one))
        norms = np.sort(one.norm[one.silenced])[::-1]
        assert [row.norm for row in rows[:3]] == norms[:3].tolist()
        assert {row.chosen for row in rows[3:]} == {"random"}
        assert len({(row.step, row.token, row.norm) for row in rows}) == len(rows)
        assert len(rows) == min(6, one.silenced.sum())
        assert all(row.probability < 0.002 and row.advantage > 0 for row in rows)
        assert {row.kept for row in rows} == {one.method == "justrl"}
    assert context_of("a" * 61, "x", "\nb") == "\u2026" + "a" * 60 + "\u27e6x\u27e7\u21b5b"


TEXTS = {
    "number": ["7", " 12", "3.14", "½", "٣"],
    "word": [" the", " Le", " don't", " été", " \\boxed", "\u3000字"],
    "word piece": ["Let", "ah", "'s", "字", "(x", "<b", "x2"],
    "sign": ["+", " =", "...", "\\", "€", "👍", "<>", "[]"],
    "blank": ["", " ", "\n\n", "\t", "\xa0", "\r\n    "],
    "special": ["<|im_end|>", "<eos>", "</s>", "[PAD]", "<end▁of▁sentence>", "<|endoftext|>\n"],
    "part of a character": [r"\xe2\x80", r" \xf0\x9f", "\ufffd", r"x\xe2"],
}


@pytest.mark.parametrize("name", WORDS)
def test_each_kind_by_examples(name):
    assert {kind_of(text) for text in TEXTS[name]} == {name}
    # A newline and LaTeX are no bytes.
    assert {kind_of(r"\xi"), kind_of(r"\xray")} == {"word piece"}
