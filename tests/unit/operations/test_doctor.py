"""What is wrong with a machine is found by trying, and comes with its remedy."""

import fcntl
import io
import os
import socket
from importlib import metadata
from pathlib import Path

import pytest
import torch
from rich.console import Console

from stapo.operations import doctor
from stapo.operations.doctor import Check, print_diagnosis
from stapo.study import parse_study

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def study(raw_study):
    return parse_study(raw_study)


@pytest.fixture
def asks_vllm(raw_study):
    raw_study["evaluation"]["backend"] = "vllm"
    return parse_study(raw_study)


def only(checks) -> Check:
    (check,) = checks
    assert (check.level == "ok") == (check.remedy == "")
    return check


def test_every_package_that_deviates_is_named(tmp_path):
    lock = tmp_path / "lock.txt"
    public = metadata.version("torch").split("+")[0]
    right = f"# a comment\ntorch=={public} \\\n    --hash=sha256:0\nnumpy=={metadata.version('numpy')}\n"
    lock.write_text(right)
    assert only(doctor.packages(lock)).what == "all 2 packages match the lock file"
    lock.write_text(f"{right}pandas==0.0.1 \\\nno-such.package==1.0\n")
    check = only(doctor.packages(lock))
    found = (
        f"pandas {metadata.version('pandas')} (lock: 0.0.1), no-such.package missing (lock: 1.0)"
    )
    assert (check.level, check.what) == ("warning", f"differs from lock.txt: {found}")


def test_a_reward_of_ones_own_that_is_not_there_is_an_error(raw_study, study):
    assert not list(doctor.reward(study))
    raw_study["training"] |= {"reward": "none_of_tests:f", "reward_sha256": "0" * 64}
    check = only(doctor.reward(parse_study(raw_study)))
    assert (check.level, check.what) == (
        "error",
        "training.reward: module none_of_tests not found",
    )
    assert check.remedy.startswith("install its package")


@NO_GPU
def test_a_study_with_vllm_needs_gpus_vllm_and_a_compiler(study, asks_vllm, monkeypatch):
    assert only(doctor.gpus(study)).level == "ok"
    assert only(doctor.gpus(asks_vllm)).level == "error"
    monkeypatch.setattr(doctor.toolchain, "driver", lambda: "400.1")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "driver 400.1 is too old" in only(doctor.gpus(study)).what
    monkeypatch.setattr(doctor.toolchain, "compiler_faults", lambda: [("no compiler", "install")])
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    absent, compiler = doctor.vllm()
    assert (absent.level, absent.what[:4]) == ("error", "vLLM")
    assert compiler == Check("error", "no compiler", "install")


def test_the_disk_must_hold_the_study(tmp_path):
    assert only(doctor.disk(None, tmp_path)).level == only(doctor.disk(1, tmp_path)).level == "ok"
    check = only(doctor.disk(10**18, tmp_path))
    assert check.level == "error"
    assert "1000000000.0 GB needed" in check.what


def test_locks_are_tried(tmp_path, monkeypatch):
    assert only(doctor.locks(tmp_path)).level == "ok"
    assert only(doctor.locks(Path("/proc"))).level == "error"
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert only(doctor.locks(tmp_path)).level == "warning"
    assert not list(tmp_path.iterdir())


def test_the_hub_is_asked_where_it_is_needed(raw_study, study, monkeypatch):
    assert only(doctor.hub(study)).what == "nothing needed from the Hub"
    raw_study["models"]["hub"] = {"hub": "some/model", "revision": "main"}
    raw_study["run"]["sizes"] = ["hub"]
    study = parse_study(raw_study)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert only(doctor.hub(study)).level == "ok"
    monkeypatch.setattr("stapo.hub.time.sleep", lambda _: None)
    check = only(doctor.hub(study))
    assert check.level == "warning"
    assert check.what.startswith(f"{address} cannot be reached")
    assert "stapo fetch STUDY --check" in check.remedy


@NO_GPU
def test_the_whole_of_it_is_printed(study, asks_vllm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what, needed, failed in ((study, 1, False), (study, 10**18, True), (asks_vllm, 1, True)):
        monkeypatch.setattr(doctor, "disk_needed", lambda _, needed=needed: needed)
        stream = io.StringIO()
        assert print_diagnosis(what, Console(file=stream, width=100)) is failed
        levels = [line.split()[0] for line in stream.getvalue().splitlines()]
        assert set(levels) <= {"ok", "warning", "error", "->"}
        assert levels.count("->") == levels.count("warning") + levels.count("error")
    assert os.listdir(tmp_path) == []
