"""The profile for Slurm, on a real one: a study gives what it gives without, also when a job is killed."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_on_loopback import slurm

from stapo.repository import ROOT

pytestmark = pytest.mark.slow

KILLED, RUN = "rule_train_wildcards_tiny_justrl_0", "smoke/runs/tiny/justrl/seed0/model"
WORK = "work/smoke/train/tiny/justrl/seed0"
TABLE = "results/smoke/tables/main-t1.0-p1.0.md"


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
            wait_for(lambda: list(fresh.path.glob(f"{WORK}/*/checkpoint-*")), running, log)
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
    assert "starting: srun --nodes=2 --ntasks=2" in log, told
    assert all(f"--machine_rank {rank}" in log for rank in (0, 1))
    found = workspace.read(f"results/smoke/{run}/provenance.json")
    assert [attempt["processes"] for attempt in found["attempts"]] == [2]
    assert found["steps"] == 8
