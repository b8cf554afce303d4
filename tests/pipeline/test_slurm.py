"""The profile for Slurm, on a real one: a study gives what it gives without, also when a job is killed."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@pytest.mark.parametrize("how", ["cancelled", "told of its limit"])
def test_a_study_through_slurm_with_a_stopped_training_is_the_same(tmp_path, how):
    name, rule = "tiny/stapo/seed0", "rule_train_wildcards_tiny_stapo_0"
    usual, world = (World(tmp_path / place, STATES, stub=True) for place in ("usual", "slurm"))
    usual.run()
    of = jobs_of(world.parsed())
    work = paths.TRAIN_WORK.format(fingerprint=of.made_by("train", name))
    slow, start = world.path / "SLOW", time.monotonic()
    slow.write_text("8")
    with slurm(tmp_path / "daemons") as environment:

        def jobs(states: str) -> list[list[str]]:
            """Return number and rule, with wildcards, of the jobs in some states."""
            command = ["squeue", "--noheader", f"--states={states}", "--format=%i %k"]
            listed = subprocess.check_output(command, env=environment, text=True)
            return [line.split() for line in listed.splitlines()]

        notice = ("train:slurm_extra='--signal=USR1@120'",)
        with running(world, environment, resources=notice) as wait_for:
            wait_for((world.path / work / "metrics.jsonl").exists)
            (number,) = (number for number, what in jobs("running") if what == rule)
            # So that Slurm, which looks every 30 seconds, finds less than the 120 left.
            limit = f"TimeLimit={int(time.monotonic() - start) // 60 + 2}"
            limited = ["scontrol", "update", f"JobId={number}", limit]
            command = ["scancel", number] if how == "cancelled" else limited
            subprocess.run(command, env=environment, check=True)
            wait_for(lambda: [what for _, what in jobs("all")].count(rule) == 2)
            slow.unlink()
        ran = {what.split("_wildcards_")[0] for _, what in jobs("all")}
    assert ran == {"rule_train", "rule_generate", "rule_score"}
    if how != "cancelled":
        assert "told to stop by SIGUSR1" in world.log.read_text()
    for path in of.published():
        assert (world.path / path).read_bytes() == (usual.path / path).read_bytes(), path
