"""The paper's own numbers: its averages and its headline, recomputed."""

import pytest

from stapo.analysis.comparison import headline
from stapo.methods import BASELINES, METHODS
from stapo.reference import confidence, paper, stated_averages

ROWS = [
    (decoding, size, method)
    for decoding in ("t1.0-p1.0", "t0.7-p0.9")
    for size in ("1.7B", "8B", "14B")
    for method in ("grpo", "20-entropy", "justrl", "stapo-v2")
]


def test_23_of_24_stated_averages_follow_from_their_components():
    differences = {}
    for decoding, size, method in ROWS:
        *parts, stated = paper()["table"][decoding][size][method]
        assert len(parts) == len(paper()["benchmarks"]) == 6
        differences[decoding, size, method] = round(sum(parts) / 6 - stated, 4)
    # Components and averages are rounded to 0.01: they may differ by a unit of it.
    wrong = {row: gap for row, gap in differences.items() if abs(gap) > 0.01}
    assert wrong == {("t1.0-p1.0", "14B", "stapo-v2"): pytest.approx(0.525, abs=0.001)}


@pytest.mark.parametrize(
    ("decoding", "gains", "mean"),
    [
        ("t1.0-p1.0", {"1.7B": 13.50, "8B": 1.96, "14B": 5.94}, 7.13),
        ("t0.7-p0.9", {"1.7B": 5.21, "8B": 3.61, "14B": 2.31}, 3.71),
    ],
)
def test_the_headline_of_the_papers_averages(decoding, gains, mean):
    found = headline(stated_averages(decoding), "stapo-v2", BASELINES)
    assert {size: round(gain, 2) for size, gain in found.gains.items()} == gains
    assert round(found.mean, 2) == mean


def test_the_strongest_baseline_is_chosen_by_size():
    for decoding, strongest in (("t1.0-p1.0", "20-entropy"), ("t0.7-p0.9", "justrl")):
        found = headline(stated_averages(decoding), "stapo-v2", BASELINES)
        assert found.baselines["14B"] == strongest


def test_no_headline_without_target_or_without_baselines():
    assert headline({"a": {"grpo": 1.0}}, "stapo", BASELINES) is None
    both = {"stapo": 1.0, "grpo": 1.0}
    assert headline({"a": {"stapo": 1.0}, "b": both}, "stapo", BASELINES) is None
    assert headline({"a": both}, "stapo", ["stapo"]) is None
    assert headline({}, "stapo", BASELINES) is None


def test_all_that_is_said_has_a_revision_and_a_confidence():
    content = paper()
    for one in (*content["claims"], *content["notes"], *content["independent"]):
        assert one["revision"]
        assert confidence(one["confidence"])
    for revision, stated in content["headline"].items():
        assert METHODS[stated["method"]].revision == revision
    assert content["table"]["revision"] == METHODS["stapo-v2"].revision
    varied = {one["varies"] for one in content["claims"]} - {"selection"}
    assert varied <= set(METHODS["stapo"].selection_args)


def test_the_base_models_are_the_papers():
    content = paper()
    assert set(content["base"]["models"]) == set(content["models"].values())


def test_what_is_said_of_single_tokens_has_a_revision_and_a_confidence():
    for name in ("quadrants", "clouds", "entropy_quantiles"):
        assert paper()[name]["revision"]
        assert confidence(paper()[name]["confidence"])
    assert not {*paper()["clouds"]["silenced"]} & {*paper()["clouds"]["retained"]}
