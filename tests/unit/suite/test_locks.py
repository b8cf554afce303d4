"""One Snakemake at a time for a study, and none beside jobs that an earlier one left."""

import os
import subprocess
import sys
from types import SimpleNamespace

from stapo.suite import locks

CLAIM = """
import sys
from stapo.suite.locks import BusyError, claim_study
try:
    claim_study("mine")
except BusyError as error:
    sys.exit(str(error))
print("claimed", flush=True)
sys.stdin.read()
"""
JOB = "from stapo.suite.locks import join_jobs; join_jobs(); print('joined', flush=True); input()"


def start(code, path, **environment):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=path, text=True, env=os.environ | environment, **pipes
    )


def test_a_second_snakemake_is_refused_while_the_first_lives(tmp_path):
    first = start(CLAIM, tmp_path)
    assert first.stdout.readline() == "claimed\n"
    second = start(CLAIM, tmp_path)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 1
    assert f"another snakemake runs this study ({os.uname().nodename} {first.pid})" in said
    first.kill()
    first.communicate()


def test_the_next_snakemake_waits_for_a_job_that_was_left(tmp_path, monkeypatch, capsys):
    lock = tmp_path / "work" / "mine" / "jobs.lock"
    job = start(JOB, tmp_path, STAPO_JOBS_LOCK=str(lock))
    assert job.stdout.readline() == "joined\n"
    monkeypatch.chdir(tmp_path)
    # The job ends while the claim waits for it.
    waits = SimpleNamespace(sleep=lambda _: job.communicate("\n", timeout=60))
    monkeypatch.setattr(locks, "time", waits)
    locks.claim_study("mine")
    assert job.returncode == 0
    said = f"waiting for jobs of an earlier run (processes: {job.pid})"
    assert said in capsys.readouterr().err
