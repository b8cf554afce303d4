"""The profile for Slurm, on a real one: a study gives what it gives without, also when a job is killed."""

import hashlib
import re
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slurm_on_loopback import slurm
from world import STATES, World

from stapo import paths
from stapo.repository import ROOT
from stapo.stages import jobs_of

SLURM = (
    # The profile that users have.
    *("--workflow-profile", str(ROOT / "workflows" / "profiles" / "slurm")),
    # A cluster has accounting and jobs of hours: `sacct`, asked every 40 s.
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
    # In place of the profile's: the study's own resources, here no GPU.
    *("--set-resources", "train:runtime=10"),
)
"""Options in place of the number of cores; resources of a test come last."""
SLOW = '''"""The built-in reward, after some time where a file says so."""

import time
from pathlib import Path

from stapo.training.rewards import boxed_reward


def slow(completions, answer, **others):
    if Path("slow").exists():
        time.sleep(8)
    return boxed_reward(completions, answer, **others)
'''


@contextmanager
def running(
    world: World, environment: dict[str, str], *targets: str, resources: tuple[str, ...] = ()
) -> Iterator[Callable[..., None]]:
    """Run a study through Slurm to its end; yield a function that waits for something to be true."""
    world.write()
    world.options = (*SLURM, *resources)
    process = world.start(*targets, **environment)

    def wait_for(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert process.poll() is None, world.log.read_text()
            assert time.monotonic() < deadline, world.log.read_text()
            time.sleep(0.05)

    try:
        yield wait_for
        assert process.wait(600) == 0, world.log.read_text()
    finally:
        process.kill()


def work_of(world: World, name: str) -> Path:
    """Return where a training works."""
    made_by = jobs_of(world.parsed()).made_by("train", name)
    return world.path / paths.TRAIN_WORK.format(fingerprint=made_by)


def test_a_study_through_slurm_with_a_cancelled_training_is_the_same(tmp_path):
    name, job = "tiny/stapo/seed0", "rule_train_wildcards_tiny_stapo_0"
    usual, world = (World(tmp_path / place, STATES, stub=True) for place in ("usual", "slurm"))
    usual.run()
    with slurm(tmp_path / "daemons") as environment:

        def jobs(states: str) -> list[list[str]]:
            """Return number and rule, with wildcards, of the jobs in some states."""
            command = ["squeue", "--noheader", f"--states={states}", "--format=%i %k"]
            listed = subprocess.check_output(command, env=environment, text=True)
            return [line.split() for line in listed.splitlines()]

        slowly = {**environment, "STEP_SECONDS": "1"}
        with running(world, slowly) as wait_for:
            wait_for((work_of(world, name) / "metrics.jsonl").exists)
            (cancelled,) = (number for number, what in jobs("running") if what == job)
            subprocess.run(["scancel", cancelled], env=environment, check=True)
        ran = [what for _, what in jobs("all")]
    assert {what.split("_wildcards_")[0] for what in ran} == {
        "rule_train", "rule_generate", "rule_score",
    }  # fmt: skip
    assert ran.count(job) == 2
    for path in jobs_of(usual.parsed()).published():
        assert (world.path / path).read_bytes() == (usual.path / path).read_bytes(), path


def test_a_training_on_two_nodes_meets_over_srun(workspace, tmp_path):
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        pytest.skip("this machine does not find itself by its name, by which nodes meet")
    workspace.study["run"] |= {"methods": ["justrl"], "seeds": [1]}
    run, on_two = "runs/tiny/justrl/seed1", ("train:nodes=2", "train:tasks=2", "train:mpi=srun")
    with (
        slurm(tmp_path / "slurm", nodes=2) as environment,
        running(workspace, environment, f"results/smoke/{run}/model", resources=on_two),
    ):
        pass
    log = (workspace.path / f"logs/smoke/{run}/model.log").read_text()
    told = workspace.log.read_text() + log
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
    told = World(Path(shutil.copytree(workspace.path, tmp_path / "told")), workspace.study)
    model = Path("results/smoke/runs/tiny/justrl/seed1/model")
    workspace.run(str(model))
    (told.path / "slow").touch()
    work, notice = work_of(told, "tiny/justrl/seed1"), "train:slurm_extra='--signal=USR1@120'"
    start = time.monotonic()
    with (
        slurm(tmp_path / "slurm") as environment,
        running(told, environment, str(model), resources=(notice,)) as wait_for,
    ):
        wait_for((work / "metrics.jsonl").exists)
        # So that Slurm, which looks every 30 seconds, finds less than the 120 left.
        limit = f"TimeLimit={int(time.monotonic() - start) // 60 + 2}"
        subprocess.run(["scontrol", "update", "JobId=1", limit], env=environment, check=True)
        wait_for(lambda: list(work.glob("checkpoint-*")))
        (told.path / "slow").unlink()
    (saved,) = set(re.findall(r"told to stop: saving step ([1-7])\b", told.log.read_text()))
    attempts = told.read(str(model.with_name("provenance.json")))["attempts"]
    assert [attempt["after_step"] for attempt in attempts] == [0, int(saved)]
    for name in ("model.safetensors", "config.json"):
        path = model / name
        assert (told.path / path).read_bytes() == (workspace.path / path).read_bytes()
