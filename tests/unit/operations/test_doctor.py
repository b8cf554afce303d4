"""What is wrong with a machine is found by trying, and comes with its remedy."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants
from rich.console import Console

from stapo import provenance
from stapo.operations import doctor, file_system
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


@contextmanager
def server(status: int, host: str = "127.0.0.1"):
    """An HTTP server on this machine that answers everything alike."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer((host, 0), Answer) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listener.server_port}"
        listener.shutdown()


def closed_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def only(checks) -> Check:
    (check,) = checks
    assert (check.level == "ok") == (check.remedy == "")
    return check


def test_python_is_the_one_of_the_lock():
    assert only(doctor.python()).level == ("ok" if sys.version_info[:2] == (3, 11) else "warning")


def test_every_package_that_deviates_is_named(tmp_path):
    lock = tmp_path / "lock.txt"
    public = metadata.version("torch").split("+")[0]
    right = f"# a comment\ntorch=={public} \\\n    --hash=sha256:0\nnumpy=={metadata.version('numpy')}\n"
    lock.write_text(right)
    assert only(doctor.packages(lock)).what == "all 2 packages match lock.txt"
    lock.write_text(f"{right}pandas==0.0.1 \\\nno-such.package==1.0\n")
    check = only(doctor.packages(lock))
    found = (
        f"pandas {metadata.version('pandas')} (lock: 0.0.1), no-such.package missing (lock: 1.0)"
    )
    assert (check.level, check.what) == ("warning", f"differs from lock.txt: {found}")
    assert only(doctor.packages(tmp_path / "none.txt")).level == "warning"


def test_changes_in_the_checkout_are_said(tmp_path, monkeypatch):
    def look() -> Check:
        provenance.provenance.cache_clear()
        return only(doctor.git())

    def git(*args: str) -> None:
        name = ["-c", "user.name=x", "-c", "user.email=x@y"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *args], check=True, capture_output=True)

    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    try:
        assert "is not a git checkout" in look().what
        git("init")
        (tmp_path / "file").write_text("1")
        git("add", "file")
        git("commit", "-m", "one")
        assert look().level == "ok"
        (tmp_path / "file").write_text("2")
        assert "`dirty`" in look().what
    finally:
        provenance.provenance.cache_clear()


def test_what_is_not_pinned_is_a_warning(raw_study, study):
    assert only(doctor.revisions(study)).level == "ok"
    raw_study["data"] = {"hub": "some/prompts", "revision": "main"}
    revision, checksum = doctor.revisions(parse_study(raw_study))
    assert (revision.level, revision.remedy) == ("warning", "pin the commit")
    assert "some/prompts" in revision.what
    assert checksum.level == "warning"
    assert checksum.what.startswith("data.sha256: null: ")
    assert checksum.remedy.endswith("results/smoke/data/prompts.json")


def test_a_reward_of_ones_own_that_is_not_there_is_an_error(raw_study, study):
    assert only(doctor.reward(study)).level == "ok"
    raw_study["training"] |= {"reward": "none_of_tests:f", "reward_sha256": "0" * 64}
    check = only(doctor.reward(parse_study(raw_study)))
    assert (check.level, check.what) == (
        "error",
        "training.reward: module none_of_tests not found",
    )
    assert check.remedy.startswith("install its package")


def test_on_gpus_it_says_that_nothing_has_been_run_on_one(study, monkeypatch):
    found = SimpleNamespace(name="NVIDIA H100", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    checks = list(doctor.gpus(study))
    assert [check.level for check in checks[-2:]] == ["ok", "warning"]
    assert "NVIDIA H100, 80 GiB" in checks[-2].what
    assert "make gpu" in checks[-1].remedy
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert not any("make gpu" in check.remedy for check in doctor.gpus(study))


@NO_GPU
def test_without_gpus_only_a_study_for_cpus_is_right(raw_study, study, asks_vllm):
    assert only(doctor.gpus(study)).level == "ok"
    assert only(doctor.gpus(asks_vllm)).level == "error"
    raw_study["evaluation"]["backend"] = "hf"
    raw_study["models"]["hub"] = {"hub": "some/model", "revision": "1" * 40}
    raw_study["run"]["sizes"] = ["hub"]
    assert only(doctor.gpus(parse_study(raw_study))).level == "warning"
    raw_study["training"]["rollouts"] = "vllm-colocate"
    assert only(doctor.gpus(parse_study(raw_study))).level == "error"


@pytest.mark.parametrize(
    ("version", "level"),
    [("0.31.0+cpu", "ok"), ("0.30.1.dev5", "ok"), ("0.99.0", "error"), (None, "error")],
)
def test_vllm_has_a_version_that_trl_supports(asks_vllm, tmp_path, monkeypatch, version, level):
    if version is None:
        if "vllm" in {d.metadata["Name"] for d in metadata.distributions()}:
            pytest.skip("vLLM is installed here")
    else:
        (tmp_path / "vllm").mkdir()
        (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('imported')")
        about = tmp_path / f"vllm-{version}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path)
    check = only(doctor.vllm(asks_vllm))
    assert check.level == level
    assert (version or "not installed") in check.what
    assert level == "ok" or "0.31.0" in check.remedy


def test_vllm_matters_only_where_it_is_asked_for(study):
    assert only(doctor.vllm(study)).what == "vLLM not needed"


@NO_GPU
def test_a_compiler_is_looked_for_where_it_is_needed(study, asks_vllm, tmp_path, monkeypatch):
    assert list(doctor.compiler(study)) == []
    monkeypatch.setattr(doctor.toolchain, "compiler_faults", lambda: [])
    assert only(doctor.compiler(asks_vllm)).level == "ok"
    monkeypatch.setattr(doctor.toolchain, "compiler_faults", lambda: [("no compiler", "install")])
    assert only(doctor.compiler(asks_vllm)) == Check("error", "no compiler", "install")


def test_the_disk_must_hold_the_study(tmp_path):
    assert only(doctor.disk(None, tmp_path)).level == "ok"
    assert only(doctor.disk(1, tmp_path)).level == "ok"
    check = only(doctor.disk(10**18, tmp_path))
    assert check.level == "error"
    assert "1000000000.0 GB needed" in check.what


def test_a_file_system_is_tried(tmp_path, monkeypatch):
    locks, rest = doctor.file_system(tmp_path)
    assert (locks.level, rest.level) == ("ok", "ok")
    assert not list(tmp_path.iterdir())
    assert only(doctor.file_system(Path("/proc"))).level == "error"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 60)
    _, clocks = doctor.file_system(tmp_path)
    assert clocks.level == "warning"
    # A busy machine takes a second or more between the two clocks.
    assert re.search(r"clock differs from this host's by -6\d s", clocks.what)


def test_locks_that_exclude_nobody_are_found(tmp_path, monkeypatch):
    """The other process locks another file, as it would where locks do not reach it."""
    monkeypatch.setattr(
        file_system, "HOLD", file_system.HOLD.replace("sys.argv[1]", "sys.argv[1] + '2', 'w'")
    )
    locks, _ = doctor.file_system(tmp_path)
    assert (locks.level, "flock has no effect" in locks.what) == ("warning", True)


def test_the_type_of_a_file_system_is_that_of_its_mount():
    assert file_system._file_system_type(Path("/proc/self")) == "proc"
    assert file_system._file_system_type(Path("/")) != "proc"


def test_shared_memory_is_measured(tmp_path):
    assert only(doctor.shared_memory()).what.startswith("/dev/shm: ")
    if not torch.cuda.is_available():
        assert only(doctor.shared_memory(tmp_path / "none")).level == "ok"


def test_the_hub_answers_or_the_caches_are_looked_at(raw_study, study, tmp_path, monkeypatch):
    assert only(doctor.hub(study)).what == "nothing needed from the Hub"
    raw_study["models"]["hub"] = {"hub": "some/model", "revision": "main"}
    raw_study["run"]["sizes"] = ["hub"]
    study = parse_study(raw_study)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with server(200) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        assert only(doctor.hub(study)).level == "ok"
    with server(503) as broken:
        assert doctor.unreachable(broken, below=500)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    check = only(doctor.hub(study))
    assert check.level == "error"
    assert check.what.startswith(f"{address} does not answer")
    assert check.what.endswith("not in the caches: model hub: some/model at main")
    cached = tmp_path / "hub" / "models--some--model"
    for name, text in (("refs/main", "1" * 40), (f"snapshots/{'1' * 40}/config.json", "{}")):
        (cached / name).parent.mkdir(parents=True)
        (cached / name).write_text(text)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check = only(doctor.hub(study))
    assert (check.level, check.what) == (
        "ok",
        "HF_HUB_OFFLINE is set; all 1 items are in the caches",
    )


def test_rows_with_another_checksum_are_no_fault_of_the_hub(raw_study, tmp_path, monkeypatch):
    raw_study["benchmarks"] = {"aime24": {"samples": 10}}
    raw_study["run"]["benchmarks"] = ["aime24"]
    row = {"question": "1?", "answer": "1"}
    (tmp_path / "AIME24.jsonl").write_text(f"{json.dumps(row)}\n" * 30)
    monkeypatch.setenv("STAPO_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check = only(doctor.hub(parse_study(raw_study)))
    assert check.level == "error"
    assert "aime24" in check.what
    assert "expected rows with SHA-256" in check.what
    assert "caches" not in check.what
    assert "STAPO_DATA_DIR" in check.remedy


@pytest.mark.parametrize(
    ("script", "level", "word"),
    [
        ("echo gpu up 4", "ok", "Slurm answers"),
        ("echo 'slurm_load: \033[31mdown'; echo more; exit 1", "error", "sinfo: slurm_load: down"),
        ("sleep 20", "error", "no answer within 1 s"),
        (None, "error", "sinfo: No such file"),
    ],
)
def test_slurm_answers_or_not(tmp_path, monkeypatch, script, level, word):
    programs = {"sbatch": "", "sinfo": script}
    for name, text in programs.items():
        if text is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if script else str(tmp_path))
    started = time.monotonic()
    check = only(doctor.slurm(timeout=1.0))
    # The script's own child holds on to its output.
    assert time.monotonic() - started < 15
    assert check.level == level
    assert word in check.what
    assert "\033" not in check.what


def test_no_slurm_is_nothing_bad(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert only(doctor.slurm()).level == "ok"


@NO_GPU
def test_the_whole_of_it_is_printed(study, asks_vllm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what, needed, failed in ((study, 1, False), (study, 10**18, True), (asks_vllm, 1, True)):
        stream = io.StringIO()
        assert print_diagnosis(what, Console(file=stream, width=100), needed) is failed
        lines = stream.getvalue().splitlines()
        levels = [line.split()[0] for line in lines]
        assert set(levels) <= {"ok", "warning", "error", "->"}
        assert levels.count("->") == levels.count("warning") + levels.count("error")
    assert os.listdir(tmp_path) == []


def test_a_model_of_unknown_shape_is_a_warning_and_the_other_checks_go_on(
    raw_study, tmp_path, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    raw_study["models"]["other"] = {"hub": "some/model", "revision": "3" * 40}
    raw_study["run"]["sizes"] = ["tiny", "other"]
    (found,) = doctor.shapes(parse_study(raw_study))
    assert found.level == "warning"
    assert "shape of some/model unknown" in found.what
    assert "not estimated" in found.what
    assert "stapo fetch" in (found.remedy or "")
    raw_study["run"]["sizes"] = ["tiny"]
    assert [check.level for check in doctor.shapes(parse_study(raw_study))] == ["ok"]
