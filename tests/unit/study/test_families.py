"""Families: methods that differ in one argument of their selection, and in nothing else."""

import pytest

from stapo import paths
from stapo.repository import ROOT
from stapo.study import merge, parse_study, read_study
from stapo.study.families import families

STUDIES = ROOT / "workflows" / "studies"


def of(raw, methods, run):
    return families(parse_study(merge(raw, {"methods": methods, "run": {"methods": run}})))


def test_the_masking_ablation_has_a_family_per_kind_of_mask():
    found = families(read_study(STUDIES / "ablation-v5.yaml"))
    assert [(one.argument, one.title) for one in found] == [
        ("quantile", "STAPO"),
        ("quantile", "High-entropy mask"),
        ("quantile", "Random mask"),
    ]
    assert found[0].members == {0.25: "stapo-q25", 0.5: "stapo-q50", 0.75: "stapo"}


def test_a_sensitivity_study_has_a_family_per_argument():
    found = families(read_study(STUDIES / "sensitivity-v3.yaml"))
    assert [(one.argument, one.title, [*one.members]) for one in found] == [
        ("tau_p", "STAPO (v2)", [0.002, 0.02, 0.2]),
        ("quantile", "STAPO (v2)", [0.2, 0.4, 0.6, 0.8]),
    ]


@pytest.mark.parametrize("name", ["smoke", "paper", "ablation-v3"])
def test_other_studies_have_none(name):
    assert families(read_study(STUDIES / f"{name}.yaml")) == []


def test_a_second_difference_makes_no_family(raw_study):
    half = {"base": "stapo", "quantile": 0.5}
    assert len(of(raw_study, {"half": half}, ["stapo", "half"])) == 1
    for other in (
        {"clip_high": 0.3},
        {"tau_p": 0.01},
        {"scope": "all"},
        {"kl_coefficient": 0.1},
        {"training": {"group_size": 16}},
    ):
        assert of(raw_study, {"half": {**half, **other}}, ["stapo", "half"]) == []
    # The same value twice is one point.
    again = {"half": {"base": "stapo", "title": "Again"}}
    assert of(raw_study, again, ["stapo", "half"]) == []


def test_a_family_announces_figure_and_table(raw_study):
    def named(study):
        return "ablation" in paths.figure_names(study), "ablation" in paths.table_names(study)

    change = {"methods": {"half": {"base": "stapo", "quantile": 0.5}}}
    assert named(parse_study(raw_study)) == (False, False)
    merged = merge(raw_study, {**change, "run": {"methods": ["stapo", "half"]}})
    assert named(parse_study(merged)) == (True, True)
