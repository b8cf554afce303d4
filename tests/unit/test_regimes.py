"""The search for the miniature's regime: what it may train, and that it goes on from its log."""

import importlib.util
import json

import pytest
import yaml

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
        for run in study.runs():
            metrics = tmp_path / f"results/{study.name}/runs/{run}/metrics.jsonl"
            metrics.parent.mkdir(parents=True, exist_ok=True)
            quarter = study.training.steps // 4
            steps = [
                {
                    "entropy": entropy,
                    "reward": reward,
                    "candidate_fraction": 0.001,
                    "seconds": {"rollout": 15 / quarter, "generate": 9.0, "update": 30 / quarter},
                }
                for entropy, reward in ((0.4, -0.5), (0.4, 0.0), (0.8, 0.5), (0.1, 0.25))
                for _ in range(quarter)
            ]
            metrics.write_text("".join(json.dumps(step) + "\n" for step in steps))
        return True

    monkeypatch.setattr(regimes, "train", train)
    return trained


@pytest.mark.parametrize("name", SEARCH["regimes"])
def test_a_regime_is_a_study_of_the_two_baselines_on_seeds_that_are_not_reported(
    name, elsewhere, tmp_path
):
    study, reported = (
        read_study(regimes.write_study(SEARCH, name)),
        read_study(STUDIES / "miniature.yaml"),
    )
    assert {run.method for run in study.runs()} == {"grpo", "justrl"}
    assert {run.seed for run in study.runs()}.isdisjoint(reported.run.seeds)
    assert study.training.steps == reported.training.steps


@pytest.mark.parametrize(
    ("name", "words", "learning_rate"), [("fast", 0.8, 1e-3), ("few-words", 0.1, 3e-4)]
)
def test_a_regime_changes_what_it_says_of_the_first_one(name, words, learning_rate, elsewhere):
    study = read_study(regimes.write_study(SEARCH, name))
    assert study.models["0.25M"].connecting_word_rate == words
    assert study.models["0.25M"].slip_rate == 0.01
    assert study.training.learning_rate == learning_rate


def test_regimes_differ_from_one_another(elsewhere):
    runs = [
        jobs_of(study).one("train", run).fingerprint
        for study in (read_study(regimes.write_study(SEARCH, name)) for name in SEARCH["regimes"])
        for run in study.runs()
    ]
    assert len(set(runs)) == len(runs)


def test_the_log_has_a_row_for_each_training_and_the_search_goes_on_from_it(elsewhere):
    assert regimes.main() == 0
    assert elsewhere == [f"regime-{name}" for name in SEARCH["regimes"]]
    rows = regimes.logged()
    assert len(rows) == len(SEARCH["regimes"]) * len(SEARCH["methods"]) * len(SEARCH["seeds"])
    first = rows[0]
    assert (first["reward_first"], first["reward_best"], first["reward_last"]) == (
        "-0.5",
        "0.5",
        "0.25",
    )
    assert (first["entropy_first"], first["entropy_last"]) == ("0.4", "0.1")
    assert (first["lowest_entropy"], first["highest_entropy"]) == ("0.25", "2.0")
    assert (first["candidates_percent"], first["minutes"]) == ("0.1", "3.0")

    del elsewhere[:]
    lines = regimes.LOG.read_text().splitlines(keepends=True)
    regimes.LOG.write_text("".join(lines[:-1]))
    assert regimes.main() == 0
    assert elsewhere == [f"regime-{list(SEARCH['regimes'])[-1]}"]
    assert regimes.LOG.read_text() == "".join(lines)


def test_a_regime_that_failed_is_not_in_the_log(elsewhere, monkeypatch):
    monkeypatch.setattr(regimes, "train", lambda path, cores: False)
    assert regimes.main() == 1
    assert regimes.logged() == []
