"""Trainings with the same weights are named in the notes of a table."""

import pytest
from finished_study import finish

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import show_document, show_study
from stapo.files import write_json, write_jsonl
from stapo.study import parse_study

DECODING = "t1.0-p1.0"


@pytest.fixture
def trained(raw_study, tmp_path):
    """A study with two seeds, and a function that writes what a training recorded."""
    raw_study["name"] = "demo"
    raw_study["run"] |= {
        "decodings": [DECODING], "benchmarks": ["chain-2"], "methods": ["20-entropy", "justrl", "stapo"],
        "seeds": [0, 1],
    }  # fmt: skip
    study = parse_study(raw_study)
    finish(study, tmp_path)

    def record(method: str, seed: int, weights: str, silenced: int = 0) -> None:
        at = {"study": "demo", "size": "tiny", "method": method, "seed": seed}
        outputs = {"model/model.safetensors": weights, "metrics.jsonl": "its own"}
        write_json(tmp_path / paths.RUN_PROVENANCE.format(**at), {"outputs": outputs})
        steps = range(1, study.training.steps + 1)
        lines = [{"step": step, "num_silenced": silenced} for step in steps]
        write_jsonl(tmp_path / paths.METRICS.format(**at), lines)

    return study, record


def notes(study, root) -> list[str]:
    table = main_table(study, DECODING, read_scores(study, DECODING, root))
    return [note for note in table.notes if "same weights" in note]


def test_a_method_that_silenced_nothing_is_the_other_one(trained, tmp_path, capsys, monkeypatch):
    study, record = trained
    assert notes(study, tmp_path) == []
    for seed in (0, 1):
        for method, weights in (("20-entropy", "a"), ("justrl", "b"), ("stapo", "b")):
            record(method, seed, f"{weights}{seed}")
    about = "a difference between them is not one of the methods."
    expected = f"STAPO silenced no token: the same weights as JustRL; {about}"
    assert notes(study, tmp_path) == [f"tiny, training seeds 0, 1: {expected}"]
    record("stapo", 1, "c", silenced=1)
    assert notes(study, tmp_path) == [f"tiny, training seed 0: {expected}"]
    monkeypatch.chdir(tmp_path)
    show_study(study)
    assert "STAPO silenced no token" in capsys.readouterr().out
    assert f"tiny, training seed 0: {expected}" in show_document(study)["notes"]


def test_without_the_reason_only_the_weights_are_named(trained, tmp_path):
    study, record = trained
    record("20-entropy", 0, "a")
    record("stapo", 0, "a", silenced=1)
    (note,) = notes(study, tmp_path)
    assert note.startswith("tiny, training seed 0: 20-Entropy and STAPO have the same weights; a")
