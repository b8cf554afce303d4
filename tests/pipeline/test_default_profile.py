"""`snakemake` without options: the default profile, which needs no repair after a stop or a kill."""

import os
import signal
import subprocess
import sys
import time

import pytest
from test_state_machine import World

from stapo import paths
from stapo.repository import ROOT

RUN = {"study": "states", "size": "tiny", "method": "justrl", "seed": 0}


def snakemake(*args: str, where=ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", *args]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


def test_without_a_study_the_next_command_is_named():
    done = snakemake()
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("study: ")]
    assert "snakemake --configfile workflows/studies/smoke.yaml" in lines[1]
    assert "Traceback" not in done.stderr


def test_a_misspelt_profile_starts_nothing(tmp_path):
    study = str(ROOT / "workflows/studies/smoke.yaml")
    options = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", study, "--cores", "1"]
    done = snakemake(*options, "-n", "--workflow-profile", "smokee", where=tmp_path)
    assert done.returncode == 2
    assert "study: --workflow-profile: no such profile: smokee" in done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_continues_after_a_signal(tmp_path, sent):
    world = World(tmp_path / "world")
    metrics = paths.METRICS.format(**RUN)
    running = world.start(metrics)
    work = world.path / paths.TRAIN_WORK.format(**RUN)
    deadline = time.monotonic() + 120
    while not list(work.glob("*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(running.pid, sent)
    said, _ = running.communicate(timeout=120)
    assert running.returncode != 0
    assert not (world.path / metrics).exists()
    if sent == signal.SIGINT:
        assert "study: the same command continues" in said
    said = world.run(metrics)
    assert "study: logs: logs/states/; progress, in another terminal: stapo status study" in said
    assert (world.path / metrics).exists()
    assert "study: made what was asked for; what is left: stapo status study.yaml" in said


def test_the_end_of_a_study_names_its_results(tmp_path):
    world = World(tmp_path / "world")
    world.changed = {"evaluation"}
    assert "study: states is finished" in (said := world.run())
    assert "results/states/report.html" in said
    # A long stage says how far it is in the terminal too, not only in its log.
    log = world.path / "logs/states/completions/tiny/base/t1.0-p1.0.log"
    assert log.read_text().startswith("configuration ")
    assert log.read_text().strip() in said
