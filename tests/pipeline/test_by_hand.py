"""What a reviewer does by hand gives what the pipeline has."""

import json
import shutil
from functools import partial
from itertools import chain

from programs import python, ran
from synthetic import leave_out_raw_data

from stapo.core.checksums import SUMS, file_sha256
from stapo.core.files import read_jsonl
from stapo.suite.publication.verify import RAW_CHECKS, guarded, opened, verify
from stapo.suite.records.responses import read_responses
from stapo.suite.training.launch import LAUNCHED, accelerate_command


def test_in_a_clone_without_raw_data_a_cell_is_made_again_to_the_same_responses(workspace):
    """Git has records, tables and figures of a study: nothing of it may count as finished."""
    for directory in ("work", "logs", ".snakemake"):
        shutil.rmtree(workspace.path / directory)
    folder = workspace.path / "results/smoke"
    stated = (folder / SUMS).read_text()
    show = partial(python, "-m", "stapo", "show", "study.yaml", at=workspace.path)
    shown, values = show().stdout, json.loads(show("--json").stdout)["values"]
    leave_out_raw_data(folder)
    assert json.loads(show("--json").stdout)["values"] == values
    cells = [line.split() for line in shown.splitlines() if "Base" in line]
    assert {*chain(*cells)} <= {*show().stdout.split()}
    told = python("-m", "stapo", "status", "study.yaml", at=workspace.path).stdout
    assert "published without raw data" in told
    everything = workspace.jobs()
    assert {rule: everything[rule] for rule in ("base_model", "train", "weights", "generate")} == {
        "base_model": 1, "train": 4, "weights": 4, "generate": 5,
    }  # fmt: skip
    cell = "tiny/stapo/seed0/t1.0-p1.0/chain-2"
    workspace.run(f"results/smoke/scores/{cell}.parquet")
    made = file_sha256(folder / f"completions/{cell}.jsonl")
    assert f"{made}  completions/{cell}.jsonl\n" in stated
    for path in ("tables/main-t1.0-p1.0.md", "runs/tiny/justrl/seed0/provenance.json"):
        assert f"{file_sha256(folder / path)}  {path}\n" in stated


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
    study["run"]["benchmarks"] = ["chain-2", "chain-3", "chain-4"]
    study["training"]["evaluate_every"] = 4
    curve = {"every": 2, "benchmarks": ["chain-3"], "decoding": "t1.0-p1.0"}
    study["evaluation"]["curve"] = curve
    points = ("tiny/base", "tiny/stapo/seed0")
    arms = {"methods": ["stapo", "justrl"], "repetitions": 2, "prompts": 8}
    study["interventions"] = {"checkpoints": [*points], **arms}
    workspace.run("--show-failed-logs")
    assert [path.read_bytes() for path in (last, old, graded)] == before
    log = workspace.path / "logs/smoke/completions/tiny/base/t1.0-p1.0.log"
    assert "generated 200 responses\n" in log.read_text()
    middle = folder / "runs/tiny/stapo/seed0/step4/model.safetensors"
    assert middle.read_bytes() != before[0]
    # Weights of the curve alone answer its benchmark and no other.
    responses = folder / "completions/tiny/stapo/seed0"
    found = {step: {path.stem for path in responses.glob(f"step{step}/*/*")} for step in (2, 4, 6)}
    assert found == {2: {"chain-3"}, 4: {"chain-2", "chain-3", "chain-4"}, 6: {"chain-3"}}
    assert workspace.jobs() == {}
    # Single updates are made from the weights of their checkpoint, and belong to the study.
    made = [folder / f"interventions/{point}.json" for point in points]
    first, second = (json.loads(path.read_text())["repetitions"][0] for path in made)
    assert first["entropy"] != second["entropy"]
    assert first["methods"].keys() == {"stapo", "justrl"}
    made[0].write_text(made[0].read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    with opened(folder) as (results, _):
        (line,) = guarded(next(iter(RAW_CHECKS.values())), results)
    assert line.endswith("interventions/tiny/base.json: made with other settings")


def test_one_launch_of_several_processes_trains_all_of_a_stage(workspace, monkeypatch):
    shutil.rmtree(workspace.path / "work")
    workspace.change({"run": {"methods": ["justrl", "stapo"]}})
    monkeypatch.setenv(LAUNCHED, "1")
    command = accelerate_command(["run", "train", "--study", str(workspace.write())], 0, 1, {})
    command[command.index("--num_processes") + 1] = "2"
    ran(*command, at=workspace.path)
    for method in workspace.study["run"]["methods"]:
        record = workspace.read(f"results/smoke/runs/tiny/{method}/seed0/provenance.json")
        assert record["attempts"][-1]["processes"] == 2


def test_checkpoints_from_anywhere_are_a_study_of_their_own(workspace):
    folder = workspace.path / "results/smoke"
    shutil.copytree(folder / "runs/tiny/stapo/seed0/model", workspace.path / "copied")
    sizes = {"before": str(folder / "models/tiny/base"), "after": "copied"}
    models = {size: {"path": path} for size, path in sizes.items()}
    workspace.change({"name": "mine", "models": models, "run": {"models": [*sizes], "methods": []}})
    workspace.run("--show-failed-logs")
    table = (workspace.path / "results/mine/tables/main-t1.0-p1.0.md").read_text()
    assert "- after minus before " in table
    assert not verify(workspace.path / "results/mine")["failed"]
    # The weights of a finished study give its responses.
    cell = "t1.0-p1.0/chain-2.jsonl"
    mine, old = (workspace.path / f"results/{name}/completions" for name in ("mine", "smoke"))
    again, before = (
        [problem.responses for problem in read_responses(path / cell)]
        for path in (mine / "after/base", old / "tiny/stapo/seed0")
    )
    assert again == before


CODE = """
def score(completions, answer, **columns):
    return [float(right in one[-1]["content"]) for one, right in zip(completions, answer)]
def read(response):
    return response.split()[-1] if response.split() else None
"""


def test_a_study_with_code_of_its_own_verifies_and_names_no_folder(workspace):
    (workspace.path / "code.py").write_text(CODE)
    (workspace.path / "p.jsonl").write_text('{"question": "chain:1+2", "answer": 3}\n')
    benchmarks = {
        "mine": {"file": "p.jsonl", "samples": 2, "answer": "code.py:read"},
        "chain-2": {"rows": 5},
    }
    run = {"methods": ["stapo"], "seeds": [0], "benchmarks": [*benchmarks]}
    training = {"reward": "code.py:score", "instruction": "=", "steps": 4}
    workspace.change({"name": "mine", "training": training, "benchmarks": benchmarks, "run": run})
    workspace.run("--show-failed-logs")
    folder = workspace.path / "results/mine"
    (workspace.path / "code.py").unlink()
    assert not verify(folder)["failed"]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if str(workspace.path).encode() in path.read_bytes()] == []


FLAG = """
import os, torch
def score(completions, **columns):
    on = torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" in os.environ
    return [float(on)] * len(completions)
"""


def test_a_deterministic_study_reaches_pytorch_and_starts_no_vllm_that_is_not(workspace):
    (workspace.path / "code.py").write_text(FLAG)
    workspace.change({"training": {"reward": "code.py:score", "instruction": "=", "steps": 2}})
    workspace.change({"run": {"methods": ["stapo"]}, "compare": None})
    for on, name in enumerate(("fastest", "deterministic")):
        workspace.change({"run": {"algorithms": name}, "evaluation": {"backend": "vllm"}})
        job = ("--study", workspace.write())
        for stage in ("prompts", "train"):
            python("-m", "stapo", "run", stage, *job, at=workspace.path)
        metrics = read_jsonl(workspace.path / "results/smoke/runs/tiny/stapo/seed0/metrics.jsonl")
        assert {step["reward"] for step in metrics} == {float(on)}
    generate = ("-m", "stapo", "run", "generate", "tiny/base", *job)
    refused = python(*generate, at=workspace.path, code=2, CUDA_VISIBLE_DEVICES="")
    cause = "run.algorithms: vLLM's batch-invariant mode needs a GPU; set evaluation.backend: hf"
    assert refused.stderr.splitlines()[-1] == f"stapo: {cause}"
