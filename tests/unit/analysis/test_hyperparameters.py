"""The table of hyperparameters and the algorithm say what the study trains."""

import pytest

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.hyperparameters import LABELS, NOT_STATED, OWN, algorithm, table
from stapo.methods import METHODS
from stapo.reference import confidence, paper
from stapo.repository import ROOT
from stapo.study import merge, parse_study, read_study

PAPER = ROOT / "workflows" / "studies" / "paper.yaml"


def rows(study):
    return {(row.setting, row.methods): row for row in table(Artefacts(study)).rows}


def test_the_papers_study_is_as_the_paper_or_our_choice():
    found = rows(read_study(PAPER))
    assert found["learning rate (AdamW)", "all"].source.startswith("as in the paper [read in")
    weight_decay = found["weight decay", "all"]
    assert (weight_decay.ours, weight_decay.paper) == ("0.1", NOT_STATED)
    assert weight_decay.source.startswith(OWN)
    assert "JustRL's script has 0.1" in weight_decay.source
    assert found["KL coefficient", "GRPO"].ours == "0.04"
    assert found["KL coefficient", "GRPO"].source == "as in the paper [inferred]"
    assert found["q, quantile of the entropies", "STAPO"].ours == "0.75"
    assert not [row for row in found.values() if row.source.startswith("differs")]


@pytest.mark.parametrize(
    ("change", "setting", "methods", "ours"),
    [
        ({"training": {"learning_rate": 2e-6}}, "learning rate (AdamW)", "all", "2e-06"),
        ({"methods": {"stapo": {"tau_p": 0.01}}}, "τ_p", "STAPO", "0.01"),
        ({"methods": {"grpo": {"clip_high": 0.3}}}, "upper clip, ε_high", "GRPO", "0.3"),
        ({"benchmarks": {"aime24": {"samples": 16}}}, "responses per problem, aime24", "all", "16"),
        ({"evaluation": {"max_response_tokens": 99}}, "maximum response [tokens], evaluation", "all", "99"),
    ],
)  # fmt: skip
def test_a_change_is_shown_as_a_difference(change, setting, methods, ours):
    row = rows(read_study(PAPER, changes=change))[setting, methods]
    assert row.ours == ours
    assert row.source.startswith("differs from the paper")


def test_methods_trained_with_their_own_batches_have_rows_of_their_own(raw_study):
    change = {"methods": {"20-entropy": {"training": {"group_size": 16}}}}
    found = rows(parse_study(merge(raw_study, change)))
    assert found["responses per prompt, G", "20-Entropy"].ours == "16"
    assert found["responses per prompt, G", "GRPO, JustRL, STAPO"].ours == "8"


def test_the_algorithm_has_the_studys_own_numbers():
    change = {"methods": {"stapo": {"tau_p": 0.01, "quantile": 0.6, "clip_high": 0.3}}}
    study = read_study(PAPER, changes={**change, "run": {"methods": ["justrl", "stapo"]}})
    lines = algorithm(study)
    start = lines.index("STAPO")
    assert lines[0] == "JustRL"
    assert "    keep all tokens" in lines[:start]
    text = "\n".join(lines[start:])
    assert "A > 0 and p < 0.01" in text
    assert "τ_h = 0.6 quantile of H of the candidates of the mini-batch" in text
    assert "clip(r, 0.8, 1.3) A), at least 10 A where A < 0" in text
    assert "mean over the kept tokens of the mini-batch" in text
    assert "of the current policy" in text
    assert "learning rate 1e-06 after 10 steps of warm-up, weight decay 0.1" in text


def test_equal_algorithms_are_one_and_every_selection_has_words(raw_study):
    same = {"again": {"base": "stapo", "title": "Again"}}
    published = [name for name, method in METHODS.items() if method.source != "our choice"]
    change = {"methods": same, "run": {"methods": [*published, "again"]}}
    lines = algorithm(parse_study(merge(raw_study, change)))
    assert "STAPO, Again" in lines
    assert lines.count("") == len(published) - 1
    assert not [line for line in lines if "select tokens by" in line]


def test_the_reference_is_complete():
    known = paper()["hyperparameters"]
    study = read_study(PAPER)
    for one in (*known["training"], *known["evaluation"]):
        assert confidence(one["confidence"])
    for one in known["training"]:
        assert hasattr(study.training, one["setting"])
    for name, stated in known["methods"].items():
        method = METHODS[name]
        for key in {*stated} - {"confidence", "inferred"}:
            expected = method.arguments[key] if key in method.arguments else getattr(method, key)
            assert stated[key] == expected, (name, key)
    assert {*LABELS} <= {one["setting"] for one in known["training"]} | {
        "clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip",
        "tau_p", "quantile", "scope", "fraction",
    }  # fmt: skip
