"""The search for the miniature's regime: what it may train."""

import importlib.util

import yaml

from stapo.repository import ROOT, STUDIES
from stapo.stages import jobs_of
from stapo.study import read_study

spec = importlib.util.spec_from_file_location("regimes", ROOT / "workflows" / "regimes.py")
regimes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(regimes)

SEARCH = yaml.safe_load(regimes.SEARCH.read_text())


def test_regimes_differ_and_are_of_the_two_baselines_on_seeds_that_are_not_reported(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(regimes, "ROOT", tmp_path)
    reported, fingerprints = read_study(STUDIES / "miniature.yaml"), []
    for name in SEARCH["regimes"]:
        study = read_study(regimes.write_study(SEARCH, name))
        assert {run.method for run in study.runs()} == {"grpo", "justrl"}
        assert {run.seed for run in study.runs()}.isdisjoint(reported.run.seeds)
        assert study.training.steps == reported.training.steps
        fingerprints += [jobs_of(study).one("train", run).fingerprint for run in study.runs()]
    assert len({*fingerprints}) == len(fingerprints)
