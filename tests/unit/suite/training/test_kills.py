"""Twelve kills at random moments, some while a checkpoint is written: the same bits in the end.

This is also the program that trains: `python test_kills.py WORLD OUT`. It forks after its imports, so that a
start costs tenths of a second instead of ten. `make gpu` runs this on a GPU.
"""

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3]))
import torch
from programs import python
from training_jobs import assert_same, run

from stapo.core.checkpoints import ASIDE, step_checkpoints, step_of
from stapo.suite.runners import compute_deterministically

KILLS, STEPS = 12, 60


def trained(world: Path, out: Path) -> None:
    # On a GPU the backward pass of attention otherwise adds in an order that differs from run to run.
    compute_deterministically()
    try:
        run(world, out, steps=STEPS)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
def test_twelve_kills_leave_the_same_weights_and_metrics(world, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trained(world, whole)
    done = python(__file__, world, killed)
    # Kills that aim at a checkpoint being written hit one; otherwise the test tests less than it says.
    assert done.stdout.count("killed while writing") >= 1
    assert done.stdout.count("resuming after step") >= 6
    assert_same(killed, whole)


def main(world: Path, out: Path) -> None:
    chance, work = random.Random(0), out / "work"

    def child() -> int:
        if process := os.fork():
            return process
        torch.set_num_threads(1)
        trained(world, out)
        os._exit(0)

    def newest() -> int:
        return max((step_of(path) for path in step_checkpoints(work)), default=0)

    def writing() -> bool:
        with suppress(FileNotFoundError):  # It may go while it is read.
            return any((work / ASIDE).glob("checkpoint-*"))
        return False

    for kill in range(KILLS):
        process, before, started = child(), newest(), time.monotonic()
        # Of three kills one comes at any moment, one some time after a new checkpoint, and one while a
        # checkpoint is written after a new one: the first of these at once, before a fast disk is done.
        kind, wait = kill % 3, chance.uniform(0.05, 1.0)
        while time.monotonic() < started + (60.0 if kind else wait):
            if kind and newest() > before and (kind == 1 or writing()):
                time.sleep(wait if kind == 1 else 0 if kill == 2 else wait / 50)
                break
            time.sleep(0.001)
        assert os.waitpid(process, os.WNOHANG)[0] == 0, f"finished after {kill} kills"
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        print("killed while writing" if writing() else "killed", flush=True)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
