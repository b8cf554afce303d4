"""Leases of devices among real processes, and the commands that start a training."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stapo.suite import locks
from stapo.suite.jobs import jobs_of
from stapo.suite.runners import Resources, train as runner
from stapo.suite.study import StudyError, read_study
from stapo.suite.study.reading import shipped
from stapo.suite.training.launch import (
    CONFIGURATIONS,
    LAUNCHED,
    NOTICE,
    RENDEZVOUS,
    accelerate_command,
    launch_training,
    require_fit,
    srun_command,
)

HOLD = """
import os, sys
from pathlib import Path
from stapo.suite.locks import lease
print(*lease(int(sys.argv[1]), ["0", "1", "2", "3"], Path(sys.argv[2])), flush=True)
os.execvp("sleep", ["sleep", "60"])
"""


def hold(count: int, directory: Path) -> subprocess.Popen[str]:
    """Start a process that holds devices and becomes another program, as trainings do."""
    command = [sys.executable, "-c", HOLD, str(count), str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def devices_of(process: subprocess.Popen[str]) -> set[str]:
    return set(process.stdout.readline().split())


def test_jobs_at_once_have_disjoint_devices_and_the_next_waits(tmp_path, monkeypatch):
    first, second = hold(1, tmp_path), hold(2, tmp_path)
    held = [devices_of(first), devices_of(second)]
    assert [len(devices) for devices in held] == [1, 2]
    assert held[0].isdisjoint(held[1])
    # Three are asked for and one is free: nothing is held back while the job waits.
    # A killed job leaves nothing behind.
    waits = SimpleNamespace(sleep=lambda _: (second.kill(), second.wait()))
    monkeypatch.setattr(locks, "time", waits)
    third = locks.lease(3, ["0", "1", "2", "3"], tmp_path)
    assert second.returncode == -signal.SIGKILL
    assert {"0", "1", "2", "3"} - held[0] == {*third}
    first.kill()
    first.wait()


@pytest.mark.parametrize(
    ("gpus", "nodes", "name", "processes"),
    [(4, 1, "gpu-8", 4), (16, 2, "nodes", 16), (0, 2, "cpu-2", 2)],
)
def test_the_configuration_fits_the_resources(gpus, nodes, name, processes):
    environment = {RENDEZVOUS: "node7:20017", "SLURM_NODEID": "1"}
    command = accelerate_command(["train", "--size", "tiny"], gpus, nodes, environment)
    options = dict(zip(command[4::2], command[5::2], strict=False))
    assert Path(options["--config_file"]) == CONFIGURATIONS / f"{name}.yaml"
    assert options["--num_processes"] == str(processes)
    assert command[-5:] == ["-m", "stapo", "train", "--size", "tiny"]
    if nodes > 1:
        assert (options["--main_process_ip"], options["--machine_rank"]) == ("node7", "1")
    else:
        assert options["--main_process_port"] == "0"


def test_a_training_on_one_gpu_becomes_the_process_that_holds_it(monkeypatch, tmp_path):
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _, command: became.append(command))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "environ", {**os.environ, "CUDA_VISIBLE_DEVICES": " 3,3, 5"})
    os.environ.pop(LAUNCHED, None)
    before = signal.getsignal(NOTICE)
    launch_training(["train", "--size", "tiny"], 1, 1)
    # What a process ignores, the program that replaces it ignores too.
    assert signal.signal(NOTICE, before) == signal.SIG_IGN
    assert became == [[sys.executable, "-m", "stapo", "train", "--size", "tiny"]]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    (leases,) = tmp_path.glob("stapo-gpus-*")
    assert leases.stat().st_mode & 0o777 == 0o700


def test_the_processes_of_a_launch_train_what_was_left_when_it_began(monkeypatch):
    jobs, trained = jobs_of(read_study(shipped("smoke"))), list[str]()
    selected = [*jobs.all("train")]
    monkeypatch.setattr(runner, "_train", lambda study, job: trained.append(job.name))
    monkeypatch.setattr(runner, "_publish", lambda job: None)
    monkeypatch.setattr("stapo.suite.training.run.leave", lambda: None)
    monkeypatch.setenv(LAUNCHED, "1")
    monkeypatch.setenv(runner.UNFINISHED, selected[1].name)
    runner._run(jobs, selected, Resources(gpus=2))
    assert trained == [selected[1].name]


def test_a_study_that_generates_with_vllm_is_not_started_without_gpus():
    paper, smoke = (read_study(shipped(name)) for name in ("paper", "smoke"))
    require_fit(smoke, 0)
    for gpus, nodes, error in (
        (9, 2, "--gpus 9: not a multiple of --nodes 2"),
        (0, 1, "vllm-colocate needs GPUs.*workflows/profiles/workstation"),
        (7, 1, "is not divisible by 7 GPUs"),
    ):
        with pytest.raises(StudyError, match=error):
            require_fit(paper, gpus, nodes)
    with pytest.raises(StudyError, match="not inside a Slurm job"):
        srun_command(["train"], 2, {})
