"""Twelve kills at random moments, some while a checkpoint is written: the same bits in the end."""

import subprocess
import sys
from pathlib import Path

import pytest
from training_jobs import assert_same, run

PROGRAM = Path(__file__).with_name("killed.py")


@pytest.mark.slow
def test_twelve_kills_leave_the_same_weights_and_metrics(world, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(world, whole, steps=60)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(world), str(killed), "12", "0"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "12 kills" in done.stdout
    # Kills that aim at a checkpoint being written hit one; otherwise the test tests less than it says.
    assert int(done.stdout.split("12 kills, ")[1].split()[0]) >= 1
    assert done.stdout.count("resuming after step") >= 6
    assert_same(killed, whole)
