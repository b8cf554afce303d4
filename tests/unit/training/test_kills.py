"""Twenty kills at random moments, some while a checkpoint is written: the same bits in the end."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_trainer import metrics, run, tokens, weights, world  # noqa: F401

PROGRAM = Path(__file__).with_name("killed.py")


@pytest.mark.slow
def test_twenty_kills_leave_the_same_weights_and_metrics(world, tmp_path):  # noqa: F811
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(world, whole, steps=120)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(world), str(killed), "20", "0"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "20 kills" in done.stdout
    # Kills that aim at a checkpoint being written hit one; otherwise the test tests less than it says.
    assert int(done.stdout.split("20 kills, ")[1].split()[0]) >= 1
    assert done.stdout.count("resuming after step") >= 10
    assert metrics(killed / "metrics.jsonl") == metrics(whole / "metrics.jsonl")
    assert tokens(killed) == tokens(whole)
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(killed)[name], tensor), name
