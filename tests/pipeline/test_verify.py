"""A published folder: what `stapo provenance` writes, and what `stapo verify` finds when it is changed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stapo.operations.publish import listed
from stapo.operations.verify import verify
from stapo.provenance import file_sha256
from stapo.study import StudyError

pytestmark = pytest.mark.slow

SCORE = "scores/tiny/justrl/seed0/t1.0-p1.0/chain-2.parquet"
RUN = "runs/tiny/stapo/seed0"


@pytest.fixture
def published(finished, tmp_path: Path) -> Path:
    """A copy of the results under another name, as somebody downloads it."""
    shutil.copytree(finished.path / "results" / "smoke", tmp_path / "downloaded")
    return tmp_path / "downloaded"


def findings(folder: Path) -> tuple[bool, dict[str, bool], str]:
    """Return the verdict, whether each question is answered with ok, and all that was said."""
    said: list[str] = []
    right = verify(folder, said.append)
    answers = {
        line[9:]: line.startswith("ok") for line in said if line.startswith(("ok  ", "error"))
    }
    return right, answers, "\n".join(said)


def renew_checksums(folder: Path) -> None:
    """What somebody does who wants to hide a change."""
    sums = [f"{file_sha256(path)}  {path.relative_to(folder)}\n" for path in listed(folder)]
    (folder / "SHA256SUMS").write_text("".join(sums))


def change_score(folder: Path) -> None:
    table = pq.read_table(folder / SCORE)
    rows = table.to_pylist()
    rows[0] |= {"correct": not rows[0]["correct"], "correct_with_verifier": not rows[0]["correct"]}
    pq.write_table(table.from_pylist(rows, schema=table.schema), folder / SCORE)


def swap_model(folder: Path) -> None:
    weights = "model/model.safetensors"
    shutil.copy(folder / "runs/tiny/grpo/seed0" / weights, folder / RUN / weights)


def change_table(folder: Path) -> None:
    path = folder / "tables" / "main-t1.0-p1.0.md"
    path.write_text(path.read_text().replace("| STAPO |", "| STAPO | **99.99** |", 1))


def test_a_finished_study_holds_wherever_it_lies(published):
    right, answers, said = findings(published)
    assert right, said
    assert len(answers) == 5
    assert f"SHA256SUMS itself: {file_sha256(published / 'SHA256SUMS')}" in said
    done = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=published, check=False
    )
    assert done.returncode == 0
    # Weights are large: a copy may lack them.
    for weights in published.rglob("*.safetensors"):
        weights.unlink()
    right, _, said = findings(published)
    assert right, said
    assert "note     5 files of weights are not here" in said


@pytest.mark.parametrize(
    ("change", "question"),
    [
        (change_score, "scores follow from the responses"),
        (swap_model, "weights are those that the trainings published"),
        (change_table, "tables follow from the scores"),
    ],
)
def test_a_change_is_found_even_with_new_checksums(
    published: Path, change: Callable[[Path], None], question: str
):
    change(published)
    right, answers, said = findings(published)
    assert not right
    assert not answers["files have their checksums"]
    assert not answers[question], said
    renew_checksums(published)
    right, answers, said = findings(published)
    assert not right
    assert answers["files have their checksums"]
    assert not answers[question], said


def test_scores_of_another_study_are_found(published):
    path = published / "provenance.json"
    about = json.loads(path.read_text())
    about["study"]["training"]["learning_rate"] = 1.0e-4
    path.write_text(json.dumps(about))
    _, answers, said = findings(published)
    assert not answers["scores were made by this study"]
    assert "run snakemake again" in said


def test_what_is_missing_or_too_much_is_named(published):
    (published / "figures" / "entropy.png").unlink()
    (published / "extra.txt").write_text("?")
    right, _, said = findings(published)
    assert not right
    assert "figures/entropy.png: missing" in said
    assert "extra.txt: is not in SHA256SUMS" in said


def test_another_folder_is_bad_input(tmp_path):
    with pytest.raises(StudyError, match="no results folder"):
        verify(tmp_path, print)
    command = [sys.executable, "-m", "stapo", "verify", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_run_says_what_it_was_made_from_and_with(finished):
    results = finished.path / "results" / "smoke"
    run = json.loads((results / RUN / "provenance.json").read_text())
    assert run["outputs"]["model/model.safetensors"] == file_sha256(
        results / RUN / "model/model.safetensors"
    )
    assert run["base"]["model.safetensors"] == file_sha256(
        results / "models/tiny/base/model.safetensors"
    )
    assert run["prompts"] == file_sha256(results / "data/prompts.jsonl")
    assert run["steps"] == 8
    (attempt,) = run["attempts"]
    assert attempt["after_step"] == 0
    assert attempt["command"][:4] == [Path(sys.executable).name, "-m", "stapo", "train"]
    # The steps are most of the attempt, and none of it twice.
    assert 0.3 * attempt["seconds"] < run["seconds"] < attempt["seconds"]
    assert run["environment"]["packages"]["torch"].startswith("2.13.0")
    assert len(run["environment"]["lock"]) == 64
    study = json.loads((results / "provenance.json").read_text())
    assert study["prompts"] == run["prompts"]
    assert study["fingerprints"]["tiny/stapo/seed0"] == run["fingerprint"]
