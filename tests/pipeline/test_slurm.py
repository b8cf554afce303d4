"""The profile for Slurm, on a real one: a study gives what it gives without, also when a job is killed."""

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_on_loopback import slurm

from stapo import paths
from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import read_study

pytestmark = pytest.mark.slow

KILLED, RUN = "rule_train_wildcards_tiny_justrl_0", "smoke/runs/tiny/justrl/seed0/model"
TABLE = "results/smoke/tables/main-t1.0-p1.0.md"
SLOW = '''"""The built-in reward, after some time where a file says so."""

import time
from pathlib import Path

from stapo.training.rewards import boxed_reward


def slow(completions, answer, **others):
    if Path("slow").exists():
        time.sleep(8)
    return boxed_reward(completions, answer, **others)
'''


def command(*targets: str, resources: tuple[str, ...] = ()) -> list[str]:
    """Return Snakemake with the profile that users have, and what a small cluster needs besides."""
    return [
        *(sys.executable, "-m", "snakemake", *targets, "--snakefile", str(ROOT / "Snakefile")),
        *("--configfile", "study.yaml"),
        *("--workflow-profile", str(ROOT / "workflows" / "profiles" / "slurm")),
        # In place of the profile's: the study's own resources, here no GPU.
        *("--set-resources", "train:runtime=10", *resources),
        # A cluster has accounting and jobs of hours: `sacct`, asked every 40 s.
        *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    ]


def work_of(workspace: Any, seed: int) -> Path:
    """Return where the training of JustRL with a seed works."""
    study = read_study(workspace.path / "study.yaml")
    made_by = jobs_of(study).made_by("train", f"tiny/justrl/seed{seed}")
    return Path(workspace.path / paths.TRAIN_WORK.format(fingerprint=made_by))


@pytest.fixture
def smaller(workspace):
    """Two methods under one decoding, with the table that they give without Slurm."""
    workspace.study["run"] |= {"methods": ["justrl", "stapo"], "decodings": ["t1.0-p1.0"]}
    workspace.write()
    done = workspace.snakemake("table_t1_0_p1_0")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def wait_for(condition: Callable[[], object], running: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_a_study_through_slurm_with_a_cancelled_training_is_the_same(smaller, tmp_path):
    fresh = type(smaller)(tmp_path / "fresh", smaller.study)
    fresh.path.mkdir()
    fresh.write()
    log = tmp_path / "snakemake.log"
    with slurm(tmp_path / "slurm") as environment, log.open("w") as stream:

        def jobs(states: str) -> list[list[str]]:
            """Return number and rule, with wildcards, of the jobs in some states."""
            command = ["squeue", "--noheader", f"--states={states}", "--format=%i %k"]
            listed = subprocess.check_output(command, env=environment, text=True)
            return [line.split() for line in listed.splitlines()]

        running = subprocess.Popen(
            command(), cwd=fresh.path, env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            wait_for(lambda: list(work_of(fresh, 0).glob("checkpoint-*")), running, log)
            (killed,) = (number for number, what in jobs("running") if what == KILLED)
            subprocess.run(["scancel", killed], env=environment, check=True)
            running.wait(600)
        finally:
            running.kill()
        ran = [what for _, what in jobs("all")]
    assert running.returncode == 0, log.read_text()
    rules = {what.split("_wildcards_")[0] for what in ran}
    assert rules == {"rule_train", "rule_generate", "rule_score"}
    assert ran.count(KILLED) == 2
    told = (fresh.path / f"logs/{RUN}.log").read_text()
    assert re.search(r"resuming after step [1-7] of 8", told)
    for path in (TABLE, f"results/{RUN}/model.safetensors"):
        assert (fresh.path / path).read_bytes() == (smaller.path / path).read_bytes(), path


def test_a_training_on_two_nodes_meets_over_srun(workspace, tmp_path):
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        pytest.skip("this machine does not find itself by its name, by which nodes meet")
    workspace.study["run"] |= {"methods": ["justrl"], "seeds": [1]}
    workspace.write()
    run = "runs/tiny/justrl/seed1"
    with slurm(tmp_path / "slurm", nodes=2) as environment:
        done = subprocess.run(
            command(
                f"results/smoke/{run}/model",
                resources=("train:nodes=2", "train:tasks=2", "train:mpi=srun"),
            ),
            cwd=workspace.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    log = (workspace.path / f"logs/smoke/{run}/model.log").read_text()
    told = done.stdout + done.stderr + log
    assert done.returncode == 0, told
    if "nothing to train" in log:
        # On a busy machine, Slurm or Snakemake may take a finished job for a failed one; then this is the log
        # of the next attempt, and the first one's is in what Snakemake says.
        warnings.warn(f"a finished training was started again:\n{told}", stacklevel=1)
    assert "starting: srun --nodes=2 --ntasks=2" in told, told
    assert all(f"--machine_rank {rank}" in told for rank in (0, 1)), told
    found = workspace.read(f"results/smoke/{run}/provenance.json")
    assert [attempt["processes"] for attempt in found["attempts"]] == [2]
    assert found["steps"] == 8


def test_a_training_told_of_its_limit_saves_its_step_and_ends_the_same(
    workspace, tmp_path, monkeypatch
):
    (tmp_path / "slow_reward.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    workspace.study["run"] |= {"methods": ["justrl"], "seeds": [1]}
    workspace.study["training"] |= {
        "reward": "slow_reward:slow",
        "reward_sha256": hashlib.sha256(SLOW.encode()).hexdigest(),
        "prompts_per_batch": 4,
        "checkpoint_every": 100,
    }
    workspace.write()
    told = type(workspace)(Path(shutil.copytree(workspace.path, tmp_path / "told")), {})
    model = "results/smoke/runs/tiny/justrl/seed1/model"
    done = workspace.snakemake(model)
    assert done.returncode == 0, done.stdout + done.stderr
    (told.path / "slow").touch()
    told.study = workspace.study
    log, work = tmp_path / "snakemake.log", work_of(told, 1)
    with slurm(tmp_path / "slurm") as environment, log.open("w") as stream:
        notice = "train:slurm_extra='--signal=USR1@120'"
        running = subprocess.Popen(
            command(model, resources=(notice,)),
            cwd=told.path, env=environment, stdout=stream, stderr=subprocess.STDOUT,
        )  # fmt: skip
        start = time.monotonic()
        try:
            wait_for(lambda: list(work.glob("metrics.jsonl")), running, log)
            # So that Slurm, which looks every 30 seconds, finds less than the 120 left.
            limit = f"TimeLimit={int(time.monotonic() - start) // 60 + 2}"
            subprocess.run(["scontrol", "update", "JobId=1", limit], env=environment, check=True)
            wait_for(lambda: list(work.glob("checkpoint-*")), running, log)
            (told.path / "slow").unlink()
            running.wait(300)
        finally:
            running.kill()
    assert running.returncode == 0, log.read_text()
    (saved,) = set(re.findall(r"told to stop: saving step ([1-7])\b", log.read_text()))
    attempts = told.read(f"{Path(model).parent}/provenance.json")["attempts"]
    assert [attempt["after_step"] for attempt in attempts] == [0, int(saved)]
    for name in ("model.safetensors", "config.json"):
        assert (told.path / model / name).read_bytes() == (
            workspace.path / model / name
        ).read_bytes()
