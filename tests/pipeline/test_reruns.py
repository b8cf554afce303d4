"""An edit reruns what it concerns and nothing else; a failure never leaves old numbers standing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from synthetic import leave_out_raw_data

from stapo import exhibits, paths
from stapo.files import read_jsonl
from stapo.provenance import SUMS, file_sha256
from stapo.repository import ROOT
from stapo.study import TrainingRun, identity, merge, parse_study

FIGURES = [figure for figure in exhibits.FIGURES.values() if figure.needs is None]
EVIDENCE = [table for table in exhibits.TABLES.values() if table.needs is None]
"""Figures and tables of evidence of a study without intermediate checkpoints or interventions."""
TABLES = {"table_t1_0_p1_0": 1, "table_t0_7_p0_9": 1}
OF_SCORES = {"scores", "responses"}
FROM_SCORES = {
    "figure": sum(bool(figure.sources & OF_SCORES) for figure in FIGURES),
    "evidence": sum(bool(table.sources & OF_SCORES) for table in EVIDENCE),
}
CATALOGUE = yaml.safe_load((ROOT / "workflows" / "catalogue.yaml").read_text())


def test_the_finished_study_has_nothing_to_do(edited):
    assert edited.jobs() == {}


def test_comments_and_order_change_nothing(edited):
    reordered = {key: edited.study[key] for key in reversed(edited.study)}
    reordered["training"] = dict(reversed(edited.study["training"].items()))
    edited.write("# a comment\n" + yaml.safe_dump(reordered, sort_keys=False))
    assert edited.jobs() == {}


def test_a_methods_hyperparameter_reruns_that_method(edited):
    edited.study["methods"] = {"stapo": {"quantile": 0.5}}
    edited.write()
    assert edited.jobs() == {
        "train": 1,
        "weights": 1,
        "generate": 2,
        "score": 4,
        **TABLES,
        "figure": len(FIGURES),
        "evidence": len(EVIDENCE),
        "values": 1,
        "report": 1,
        "provenance": 1,
    }


def test_a_decoding_reruns_its_evaluations_and_no_training(edited):
    edited.study["decodings"] = {"t0.7-p0.9": {"temperature": 0.8, "top_p": 0.9}}
    edited.write()
    assert edited.jobs() == {
        "generate": 5,
        "score": 10,
        "table_t0_7_p0_9": 1,
        **FROM_SCORES,
        "values": 1,
        "report": 1,
        "provenance": 1,
    }


@pytest.mark.parametrize(
    ("change", "rule", "before", "now"),
    [
        ({"training": {"learning_rate": 1e-4}}, "train",
         "training.learning_rate=0.0003", "training.learning_rate=0.0001"),
        ({"methods": {"stapo": {"tau_p": 0.01}}}, "train",
         "method.selection_args.tau_p=0.002", "method.selection_args.tau_p=0.01"),
        ({"benchmarks": {"chain-2": {"samples": 2}}}, "generate",
         "benchmarks.chain-2.samples=4", "benchmarks.chain-2.samples=2"),
        ({"decodings": {"t0.7-p0.9": {"temperature": 0.8, "top_p": 0.9}}}, "generate",
         "decoding.temperature=0.7", "decoding.temperature=0.8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_reason_names_the_setting_that_changed(edited, change, rule, before, now):
    edited.study = merge(edited.study, change)
    edited.write()
    said = edited.snakemake("-n").stdout
    (reasons,) = {
        re.sub("'fingerprint=[0-9a-f]+',?|,(?=')", "", reason)
        for reason in re.findall(
            rf"rule {rule}:.*?reason: [^\n]*?(before: [^\n]*)", said, re.DOTALL
        )
        if now in reason
    }
    assert re.sub(r",(?= |$)", "", reasons).split() == [
        "before:",
        f"'{before}'",
        "now:",
        f"'{now}'",
    ]


def test_a_method_with_settings_that_others_lack_reruns_none_of_them(edited):
    edited.study["methods"] = {"mine": {"base": "grpo", "dual_clip": 3.0}}
    edited.study["run"]["methods"] = [*edited.study["run"]["methods"], "mine"]
    edited.write()
    jobs = edited.jobs()
    assert (jobs["train"], jobs["weights"], jobs["generate"], jobs["score"]) == (1, 1, 2, 4)


def test_a_job_on_a_cluster_has_the_study_that_it_was_made_for(edited):
    """Snakemake starts again there, and the study file may have changed since."""
    (made_for,) = (edited.path / "work/smoke/studies").iterdir()
    named = str(made_for.relative_to(edited.path))
    edited.study["training"]["learning_rate"] = 1e-4
    edited.write()
    target = "results/smoke/runs/tiny/grpo/seed0/metrics.jsonl"
    job = (target, "-n", "-p", "--force", "--nolock", "--no-hooks", "--mode", "remote")
    done = edited.snakemake(*job, STAPO_STUDY=named)
    assert f"train --study {named} " in done.stdout, done.stderr
    # The variable is for jobs alone.
    done = edited.snakemake(target, "-n", "-p", "--force", STAPO_STUDY=named)
    assert "train --study work/smoke/studies/" in done.stdout
    assert named not in done.stdout


def test_what_only_resuming_needs_changes_nothing(edited):
    edited.study["training"]["keep_checkpoints"] = 5
    edited.write()
    assert edited.jobs() == {}


def test_a_shared_hyperparameter_retrains_everything_but_the_base(edited):
    edited.study["training"]["learning_rate"] = 1e-4
    edited.write()
    jobs = edited.jobs()
    assert jobs["train"] == jobs["weights"] == 4
    assert "base_model" not in jobs
    assert "prompts" not in jobs


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("table_t1_0_p1_0", {"generate": 5, "score": 10, "table_t1_0_p1_0": 1}),
        ("method_stapo", {"train": 1, "weights": 1, "generate": 2, "score": 4}),
        ("results/smoke/scores/tiny/base/t1.0-p1.0/chain-3.parquet", {"generate": 1, "score": 1}),
        (
            "figures",
            {"train": 4, "weights": 4, "generate": 10, "score": 20, "figure": len(FIGURES)},
        ),
    ],
    ids=["one table", "one method", "one file", "figures"],
)
def test_named_targets_ask_for_their_part(tmp_path, edited, target, expected):
    """From nothing: what a target needs, prompts, overlap and base model apart."""
    start = {"prompts", "overlap", "base_model"}
    if target.startswith("table"):
        expected = {"train": 4, "weights": 4, **expected}
    elsewhere = type(edited)(tmp_path, edited.study)
    elsewhere.write()
    jobs = {rule: count for rule, count in elsewhere.jobs(target).items() if rule in expected}
    assert jobs == expected
    assert set(elsewhere.jobs(target)) - set(expected) - {target} <= start


def test_a_new_benchmark_generates_only_itself(workspace):
    workspace.study["benchmarks"]["chain-4"] = {"samples": 2}
    workspace.study["run"]["benchmarks"] = ["chain-2", "chain-3", "chain-4"]
    workspace.write()
    tables = {
        "overlap": 1,
        **TABLES,
        **FROM_SCORES,
        "values": 1,
        "references": 1,
        "report": 1,
        "provenance": 1,
    }
    assert workspace.jobs() == {"generate": 10, "score": 30, **tables}
    old = workspace.path / "results/smoke/completions/tiny/base/t1.0-p1.0/chain-2.jsonl"
    before = old.read_bytes()
    done = workspace.snakemake("table_t1_0_p1_0")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = list((workspace.path / "logs/smoke/completions").rglob("t1.0-p1.0.log"))
    assert len(logs) == 5
    for log in logs:
        assert "generated 200 responses\n" in log.read_text()
    assert old.read_bytes() == before


def test_a_failed_training_never_leaves_old_numbers_standing(workspace):
    workspace.study["methods"] = {"stapo": {"quantile": 0.5}}
    workspace.write()
    study = parse_study(merge(CATALOGUE, workspace.study))
    directory = paths.TRAIN_WORK.format(study="smoke", size="tiny", method="stapo", seed=0)
    obstacle = (
        workspace.path
        / directory
        / identity.train_fingerprint(study, TrainingRun("tiny", "stapo", 0))
    )
    obstacle.write_text("a file where the work directory should be")
    failed = workspace.snakemake("--keep-going")
    assert failed.returncode != 0
    log = workspace.path / "logs/smoke/runs/tiny/stapo/seed0/model.log"
    assert "stapo: " in log.read_text()
    assert "Traceback" not in log.read_text()
    # The trap: Snakemake now believes that the training has its new parameters.
    assert workspace.jobs()["train"] == 1
    assert workspace.jobs()["table_t1_0_p1_0"] == 1
    obstacle.unlink()
    done = workspace.snakemake()
    assert done.returncode == 0, done.stdout + done.stderr
    assert workspace.jobs() == {}


def test_a_killed_training_resumes_and_ends_as_if_nothing_had_been(workspace):
    published = workspace.path / paths.METRICS.format(
        study="smoke", size="tiny", method="justrl", seed=0
    )
    expected = [{**r, "seconds": None} for r in read_jsonl(published)]
    directory = paths.TRAIN_WORK.format(study="smoke", size="tiny", method="justrl", seed=0)
    for path in (workspace.path / directory).glob("*/*"):
        if path.is_dir():
            shutil.rmtree(path)
    target = str(published.relative_to(workspace.path))
    command = [
        *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")),
        *("--configfile", "study.yaml", "--cores", "2", "--rerun-incomplete"),
        *("--workflow-profile", "none", "--retries", "1", "--force", target),
    ]
    running = subprocess.Popen(
        command, cwd=workspace.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    (work,) = (workspace.path / directory).iterdir()
    deadline = time.monotonic() + 120
    while not (work / "checkpoint-4").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(int((work / "lock").read_text().split()[1]), signal.SIGKILL)
    output, _ = running.communicate(timeout=300)
    assert running.returncode == 0, output
    # Killed a moment after the checkpoint of step 4; there is one after every step.
    assert re.search(r"resuming after step [4-7] of 8", output)
    assert [{**r, "seconds": None} for r in read_jsonl(published)] == expected


def test_bad_studies_end_with_code_2_and_start_nothing(tmp_path, edited):
    edited.study["training"]["prompts_per_mini_batch"] = 3
    edited.study["run"]["seeds"] = []
    broken = type(edited)(tmp_path, edited.study)
    broken.write()
    done = broken.snakemake("-n")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("study: ")]
    assert len(lines) == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_ctrl_c_saves_what_is_done_and_says_how_to_go_on(workspace):
    workspace.study["run"] |= {"methods": ["justrl"], "seeds": [1]}
    workspace.study["training"] |= {"steps": 400}
    workspace.write()
    run = {"study": "smoke", "size": "tiny", "method": "justrl", "seed": 1}
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "snakemake", paths.METRICS.format(**run)),
            *("--snakefile", str(ROOT / "Snakefile"), "--configfile", "study.yaml"),
            *("--cores", "2", "--workflow-profile", "none"),
        ],
        cwd=workspace.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    work = workspace.path / paths.TRAIN_WORK.format(**run)
    deadline = time.monotonic() + 120
    while not list(work.glob("*/checkpoint-8")) and time.monotonic() < deadline:
        time.sleep(0.05)
    # As a terminal does: to all processes of the job at once.
    os.killpg(running.pid, signal.SIGINT)
    running.wait(120)
    log = workspace.path / "logs/smoke/runs/tiny/justrl/seed1/model.log"
    while "stapo: stopped" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "stapo: stopped; run the same command to resume" in log.read_text()
    (directory,) = work.iterdir()
    last = read_jsonl(directory / "attempts.jsonl")[-1]
    assert last["seconds"] > 0


def test_in_a_clone_without_raw_data_a_cell_is_made_again_to_the_same_responses(workspace):
    """Git has records, tables and figures of a study: nothing of it may count as finished."""
    for directory in ("work", "logs", ".snakemake"):
        shutil.rmtree(workspace.path / directory)
    folder = workspace.path / "results/smoke"
    stated = (folder / SUMS).read_text()
    leave_out_raw_data(folder)
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


def test_what_a_folder_without_raw_data_is_stands_in_show_and_status(workspace):
    leave_out_raw_data(workspace.path / "results/smoke")
    shutil.rmtree(workspace.path / "work")
    shutil.rmtree(workspace.path / "logs")
    for command, said in {
        "show": "without its raw data, as in git: read results/smoke/tables/main-t1.0-p1.0.md",
        "status": "only its record is here, as in git",
    }.items():
        done = subprocess.run(
            [sys.executable, "-m", "stapo", command, "study.yaml"],
            cwd=workspace.path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert said in " ".join((done.stdout + done.stderr).split())
