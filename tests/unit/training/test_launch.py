"""Leases of devices among real processes, and the commands that start a training."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stapo.gpus import lease
from stapo.repository import STUDIES
from stapo.study import StudyError, read_study
from stapo.training.launch import LAUNCHED, NOTICE, launch_command, launch_training, training_errors

HOLD = """
import sys, time
from pathlib import Path
from stapo.gpus import lease
count, directory, seconds = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
held = lease(count, ["0", "1", "2", "3"], directory)
print(" ".join(held), flush=True)
time.sleep(seconds)
"""


BECOMES = HOLD.replace("time.sleep(seconds)", "import os; os.execvp('sleep', ['sleep', '60'])")


def hold(count: int, directory: Path, seconds: float, code: str = HOLD) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(count), str(directory), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def devices_of(process: subprocess.Popen[str]) -> set[str]:
    assert process.stdout is not None
    return set(process.stdout.readline().split())


def test_jobs_at_once_have_disjoint_devices_and_the_next_waits(tmp_path):
    # The first becomes another program, as trainings do, and keeps its lease.
    first, second = hold(1, tmp_path, 60, BECOMES), hold(2, tmp_path, 60)
    held = [devices_of(first), devices_of(second)]
    assert [len(devices) for devices in held] == [1, 2]
    assert held[0].isdisjoint(held[1])
    # Three are asked for and one is free: nothing is held back while the job waits.
    third = hold(3, tmp_path, 0)
    time.sleep(2)
    assert third.poll() is None
    fourth = hold(1, tmp_path, 0)
    assert devices_of(fourth).isdisjoint(held[0] | held[1])
    second.kill()  # A killed job leaves nothing behind.
    assert len(devices_of(third)) == 3
    for process in (first, second, third, fourth):
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["link", "open"])
def test_leases_lie_in_a_directory_of_this_user_alone(tmp_path, kind):
    path, theirs = tmp_path / "leases", tmp_path / "theirs"
    theirs.mkdir()
    if kind == "link":
        path.symlink_to(theirs)
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(StudyError, match="not a private directory of this user"):
        lease(1, ["0"], path)
    assert not list(theirs.iterdir())


def test_a_training_on_one_gpu_becomes_the_process_that_holds_it(monkeypatch, tmp_path):
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _, command: became.append(command))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv(LAUNCHED, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " 3,3, 5")
    before = signal.getsignal(NOTICE)
    launch_training(["train", "--size", "tiny"], 1)
    # What a process ignores, the program that replaces it ignores too.
    assert signal.signal(NOTICE, before) == signal.SIG_IGN
    assert became == [[sys.executable, "-m", "stapo", "train", "--size", "tiny"]]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    del os.environ[
        LAUNCHED
    ]  # Not by monkeypatch, which would put it back for the tests that follow.


def test_several_gpus_get_a_launcher_and_a_free_port():
    command = launch_command(["train", "--size", "tiny"], 4)
    options = dict(zip(command[4::2], command[5::2], strict=False))
    assert Path(options["--config_file"]).is_file()
    assert (options["--num_processes"], options["--main_process_port"]) == ("4", "0")
    assert command[-5:] == ["-m", "stapo", "train", "--size", "tiny"]


def test_a_study_that_generates_with_vllm_is_not_started_without_gpus():
    paper, smoke = (read_study(STUDIES / f"{name}.yaml") for name in ("paper", "smoke"))
    assert training_errors(smoke, "tiny", 0) == []
    (line,) = training_errors(paper, "8B", 0)
    assert "vllm-colocate needs GPUs" in line
    (line,) = training_errors(smoke, "tiny", 512)
    assert "--gpus 512: " in line
