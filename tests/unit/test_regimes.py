"""The search for the miniature's regime: what it may train, and that it goes on from its log."""

import importlib.util

import pytest
import yaml

from stapo.files import write_jsonl
from stapo.repository import ROOT, STUDIES
from stapo.stages import jobs_of
from stapo.study import read_study

spec = importlib.util.spec_from_file_location("regimes", ROOT / "workflows" / "regimes.py")
regimes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(regimes)

SEARCH = yaml.safe_load(regimes.SEARCH.read_text())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The search in a directory of its own; its trainings end at once, with four quarters of equal steps."""
    monkeypatch.setattr(regimes, "ROOT", tmp_path)
    monkeypatch.setattr(regimes, "LOG", tmp_path / "regimes.csv")
    monkeypatch.setattr("sys.argv", ["regimes.py"])
    trained = []

    def train(path, cores):
        study = read_study(path)
        trained.append(study.name)
        quarter = study.training.steps // 4
        seconds = {"rollout": 15 / quarter, "generate": 9.0, "update": 30 / quarter}
        shared = {"candidate_fraction": 0.001, "seconds": seconds}
        for run in study.runs():
            steps = [
                {"entropy": entropy, "reward": reward, **shared}
                for entropy, reward in ((0.4, -0.5), (0.4, 0.0), (0.8, 0.5), (0.1, 0.25))
                for _ in range(quarter)
            ]
            write_jsonl(tmp_path / f"results/{study.name}/runs/{run}/metrics.jsonl", steps)
        return True

    monkeypatch.setattr(regimes, "train", train)
    return trained


def test_regimes_differ_and_are_of_the_two_baselines_on_seeds_that_are_not_reported(elsewhere):
    reported, fingerprints = read_study(STUDIES / "miniature.yaml"), []
    for name in SEARCH["regimes"]:
        study = read_study(regimes.write_study(SEARCH, name))
        assert {run.method for run in study.runs()} == {"grpo", "justrl"}
        assert {run.seed for run in study.runs()}.isdisjoint(reported.run.seeds)
        assert study.training.steps == reported.training.steps
        fingerprints += [jobs_of(study).one("train", run).fingerprint for run in study.runs()]
    assert len({*fingerprints}) == len(fingerprints)


def test_the_log_has_a_row_for_each_training_and_the_search_goes_on_from_it(elsewhere):
    assert regimes.main() == 0
    assert elsewhere == [f"regime-{name}" for name in SEARCH["regimes"]]
    rows = regimes.logged()
    assert len(rows) == len(SEARCH["regimes"]) * len(SEARCH["methods"]) * len(SEARCH["seeds"])
    expected = {
        "reward_first": "-0.5", "reward_best": "0.5", "reward_last": "0.25", "entropy_first": "0.4",
        "entropy_last": "0.1", "lowest_entropy": "0.25", "highest_entropy": "2.0",
        "candidates_percent": "0.1", "minutes": "3.0",
    }  # fmt: skip
    assert rows[0].items() >= expected.items()

    del elsewhere[:]
    lines = regimes.LOG.read_text().splitlines(keepends=True)
    regimes.LOG.write_text("".join(lines[:-1]))
    assert regimes.main() == 0
    assert elsewhere == [f"regime-{list(SEARCH['regimes'])[-1]}"]
    assert regimes.LOG.read_text() == "".join(lines)
