"""What a reviewer does by hand gives what the pipeline has."""

import json
import os
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from replay import regrade
from synthetic import leave_out_raw_data

from stapo.provenance import SUMS, file_sha256
from stapo.repository import BENCHMARKS


def pipelines_number(finished) -> float:
    scores = finished.path / "results/smoke/scores/tiny/base/t1.0-p1.0/chain-2.parquet"
    correct = pq.read_table(scores)["correct"].to_pylist()
    assert len(correct) == 400
    return sum(correct) / 400


def stapo(place, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stapo", *args]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def test_the_finished_study_has_nothing_to_do(edited):
    assert edited.jobs() == {}


def test_lm_eval_on_the_pipelines_responses_gives_its_number(finished):
    completions = finished.path / "results/smoke/completions/tiny/base/t1.0-p1.0/chain-2.jsonl"
    assert regrade(completions, "chain-2") == pytest.approx(pipelines_number(finished), abs=1e-12)


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["check", "study.yaml"], 0, "4 trainings of 8 steps"),
        (["run", "tables", "t1.0-p1.0", "--study", "study.yaml"], 0,
         "results/smoke/tables/main-t1.0-p1.0.md"),
        (["run", "score", "tiny/base/t1.0-p1.0", "--study", "study.yaml"], 0, "graded before"),
        (["run", "train", "tiny/stapo/seed0", "--study", "study.yaml"], 0, "nothing to train"),
        (["run", "train", "tiny/stapo/seed7", "--study", "study.yaml"], 2,
         "train: unknown job 'tiny/stapo/seed7'; known: tiny/grpo/seed0"),
        (["run", "trian", "--study", "study.yaml"], 2, "stage: unknown name 'trian'; known: base"),
    ],
)  # fmt: skip
def test_the_program_does_a_step_by_hand_and_says_what_is_wrong(finished, arguments, code, said):
    done = stapo(finished.path, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_stage_without_its_input_names_the_command_that_makes_it(finished, tmp_path):
    shutil.copy(finished.path / "study.yaml", tmp_path)
    done = stapo(tmp_path, "run", "train", "tiny/stapo/seed0", "--study", "study.yaml")
    assert done.returncode == 2
    assert "stapo run base tiny --study STUDY" in done.stderr
    assert "stapo run prompts --study STUDY" in done.stderr


@pytest.mark.slow
def test_in_a_clone_without_raw_data_a_cell_is_made_again_to_the_same_responses(workspace):
    """Git has records, tables and figures of a study: nothing of it may count as finished."""
    for directory in ("work", "logs", ".snakemake"):
        shutil.rmtree(workspace.path / directory)
    folder = workspace.path / "results/smoke"
    stated = (folder / SUMS).read_text()
    leave_out_raw_data(folder)
    for command, said in {
        "show": "without its raw data, as in git: read results/smoke/tables/main-t1.0-p1.0.md",
        "status": "only its record is here, as in git",
    }.items():
        done = stapo(workspace.path, command, "study.yaml")
        assert said in " ".join((done.stdout + done.stderr).split())
    everything = workspace.jobs()
    assert {rule: everything[rule] for rule in ("base_model", "train", "weights", "generate")} == {
        "base_model": 1, "train": 4, "weights": 4, "generate": 10,
    }  # fmt: skip
    cell = "tiny/stapo/seed0/t1.0-p1.0/chain-2"
    done = workspace.snakemake(f"results/smoke/scores/{cell}.parquet")
    assert done.returncode == 0, done.stdout + done.stderr
    made = file_sha256(folder / f"completions/{cell}.jsonl")
    assert f"{made}  completions/{cell}.jsonl\n" in stated
    for path in ("tables/main-t1.0-p1.0.md", "runs/tiny/justrl/seed0/provenance.json"):
        assert f"{file_sha256(folder / path)}  {path}\n" in stated


@pytest.mark.slow
def test_a_new_benchmark_and_kept_steps_make_only_what_they_need(workspace):
    """Responses and scores stay; trainings that are made again for their steps end with the same bits."""
    folder = workspace.path / "results/smoke"
    last = folder / "runs/tiny/stapo/seed0/model/model.safetensors"
    old = folder / "completions/tiny/base/t1.0-p1.0/chain-2.jsonl"
    graded = folder / "scores/tiny/base/t1.0-p1.0/chain-2.parquet"
    before = [path.read_bytes() for path in (last, old, graded)]
    study = workspace.study
    study["benchmarks"]["chain-4"] = {"samples": 2}
    study["run"] |= {"methods": ["stapo"], "decodings": ["t1.0-p1.0"]}
    study["run"]["benchmarks"] = ["chain-2", "chain-3"]
    study["training"]["evaluate_every"] = 4
    study["evaluation"] |= {"select": "development", "development": ["chain-4"]}
    curve = {"every": 2, "benchmarks": ["chain-3"], "decoding": "t1.0-p1.0"}
    study["evaluation"]["curve"] = curve
    workspace.write()
    done = workspace.snakemake("--show-failed-logs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.read_bytes() for path in (last, old, graded)] == before
    log = workspace.path / "logs/smoke/completions/tiny/base/t1.0-p1.0.log"
    assert "generated 200 responses\n" in log.read_text()
    middle = folder / "runs/tiny/stapo/seed0/step4/model.safetensors"
    assert middle.read_bytes() != before[0]
    table = (folder / "tables/main-t1.0-p1.0.md").read_text()
    assert "the best on chain-4, shown in no table" in table
    assert re.search(r"\| tiny \| stapo \| 0 \| ", table.split("Best on the test*")[1])
    # Weights of the curve alone answer its benchmark and no other.
    responses = folder / "completions/tiny/stapo/seed0"
    found = {step: {path.stem for path in responses.glob(f"step{step}/*/*")} for step in (2, 4, 6)}
    assert found == {2: {"chain-3"}, 4: {"chain-2", "chain-3", "chain-4"}, 6: {"chain-3"}}
    assert workspace.jobs() == {}
    # Another rule needs no job but what shows scores of the chosen weights.
    study["evaluation"]["select"] = 4
    workspace.write()
    assert workspace.jobs().keys() == {
        "table_t1_0_p1_0", "evidence", "figures", "report", "provenance",
    }  # fmt: skip
