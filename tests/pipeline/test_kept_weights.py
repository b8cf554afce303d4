"""Weights before the last: kept, evaluated, and chosen among by the declared rule."""

import hashlib

import pytest

from stapo.publication.verify import file_errors, opened, verify

pytestmark = pytest.mark.slow

LAST = "results/smoke/runs/tiny/stapo/seed0/model/model.safetensors"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_checkpoints_asked_for_later_train_again_to_the_same_weights(workspace):
    study = workspace.study
    study["run"] |= {"methods": ["stapo"], "decodings": ["t1.0-p1.0"]}
    study["training"]["evaluate_every"] = 4
    study["evaluation"] |= {"select": "development", "development": ["chain-4"]}
    study["evaluation"]["curve"] = {
        "every": 2, "benchmarks": ["chain-3"], "decoding": "t1.0-p1.0",
    }  # fmt: skip
    before = digest(workspace.path / LAST)
    workspace.write()
    done = workspace.snakemake("--show-failed-logs")
    assert done.returncode == 0, done.stdout + done.stderr
    log = (workspace.path / "logs/smoke/runs/tiny/stapo/seed0/model.log").read_text()
    assert log.count("skipped, step 2 must be done again") == 1
    assert digest(workspace.path / LAST) == before
    middle = workspace.path / "results/smoke/runs/tiny/stapo/seed0/step4/model.safetensors"
    assert digest(middle) != before
    table = (workspace.path / "results/smoke/tables/main-t1.0-p1.0.md").read_text()
    assert "the best on chain-4, shown in no table" in table
    assert "chain-4" not in table.split("Checkpoint of each")[0].split("Problems:")[0]
    assert "| tiny | stapo | 0 | " in table.split("Best on the test*")[1]
    assert (workspace.path / "results/smoke/figures/accuracy.png").stat().st_size > 10_000
    assert workspace.jobs() == {}
    # Weights of the curve alone answer its benchmark and no other.
    responses = workspace.path / "results/smoke/completions/tiny/stapo/seed0"
    found = {step: {path.stem for path in responses.glob(f"step{step}/*/*")} for step in (2, 4, 6)}
    assert found == {2: {"chain-3"}, 4: {"chain-2", "chain-3", "chain-4"}, 6: {"chain-3"}}
    # Tables that no study lists are refused: those of the decoding that is left out now.
    for path in (workspace.path / "results/smoke/tables").glob("main-t0.7*"):
        path.unlink()
    checked: list[str] = []
    assert verify(workspace.path / "results/smoke", checked.append), checked

    # Another rule needs no job but what shows scores of the chosen weights.
    study["evaluation"]["select"] = 4
    workspace.write()
    assert workspace.jobs() == {
        "values": 1,
        "report": 1,
        "provenance": 1,
        "table_t1_0_p1_0": 1,
        "figure": 1,
        "evidence": 2,
    }

    # Without the curve nothing of it is shown, and what it left passes for another form of the study.
    study["evaluation"]["curve"] = None
    workspace.write()
    assert workspace.jobs().keys() >= {"train", "weights", "figure", "report", "provenance"}
    done = workspace.snakemake("--show-failed-logs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert digest(workspace.path / LAST) == before
    with opened(workspace.path / "results/smoke") as (results, refused):
        assert refused == list(file_errors(results)) == []
        assert (results.folder / "runs/tiny/stapo/seed0/step2").is_dir()
    assert "step2" not in (workspace.path / "results/smoke/SHA256SUMS").read_text()
    assert workspace.jobs() == {}
