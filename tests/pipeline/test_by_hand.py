"""What a reviewer does by hand gives what the pipeline has."""

import json
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from stapo.evaluation.replay import regrade
from stapo.repository import BENCHMARKS


def pipelines_number(finished) -> float:
    scores = finished.path / "results/smoke/scores/tiny/base/t1.0-p1.0/chain-2.parquet"
    correct = pq.read_table(scores)["correct"].to_pylist()
    assert len(correct) == 400
    return sum(correct) / 400


def test_lm_eval_on_the_pipelines_responses_gives_its_number(finished):
    completions = finished.path / "results/smoke/completions/tiny/base/t1.0-p1.0/chain-2.jsonl"
    assert regrade(completions, "chain-2") == pytest.approx(pipelines_number(finished), abs=1e-12)


def test_lm_eval_with_its_own_samples_agrees_within_their_spread(finished, tmp_path):
    command = [
        *(sys.executable, "-m", "lm_eval", "--model", "hf", "--device", "cpu"),
        *("--model_args", "pretrained=results/smoke/models/tiny/base,dtype=float32"),
        *("--include_path", str(BENCHMARKS), "--tasks", "stapo_chain-2", "--apply_chat_template"),
        *("--batch_size", "400", "--seed", "1234", "--output_path", str(tmp_path)),
        *("--gen_kwargs", "do_sample=true,temperature=1.0,top_p=1.0,top_k=0,max_gen_toks=48"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=finished.path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("results_*.json")
    by_hand = json.loads(path.read_text())["results"]["stapo_chain-2"]["average_at_n,all-samples"]
    # Two means of 400 draws each: five standard deviations of their difference.
    assert by_hand == pytest.approx(pipelines_number(finished), abs=5 * (2 * 0.25 / 400) ** 0.5)


def test_the_program_does_a_step_by_hand_and_says_what_is_wrong(finished, tmp_path):
    def stapo(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stapo", *args],
            cwd=finished.path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "4 trainings of 8 steps" in stapo("check", "study.yaml").stdout
    (finished.path / "wrong.yaml").write_text("name: x\nrun: {seeds: []}\n")
    wrong = stapo("check", "wrong.yaml")
    assert wrong.returncode == 2
    assert len(wrong.stderr.splitlines()) >= 5
    assert all(line.startswith("stapo: ") for line in wrong.stderr.splitlines())
    again = stapo("table", "--study", "study.yaml", "--decoding", "t1.0-p1.0")
    assert again.stdout.splitlines()[0] == "results/smoke/tables/main-t1.0-p1.0.md"
    unwritable = stapo(
        *("prompts", "--study", "study.yaml"),
        *("--out", "study.yaml/below/a/file.jsonl"),
    )
    assert unwritable.returncode == 1
    assert unwritable.stderr.startswith("stapo: ")
    assert len(unwritable.stderr.splitlines()) == 1
