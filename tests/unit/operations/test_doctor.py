"""What is wrong with a machine is found by trying, and comes with its remedy."""

import io
import os
import socket

import pytest
import torch
from rich.console import Console

from stapo.operations import doctor
from stapo.operations.doctor import print_diagnosis
from stapo.study import parse_study

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_the_hub_is_asked_where_it_is_needed(raw_study, monkeypatch):
    assert doctor.hub(parse_study(raw_study)).level == "ok"
    raw_study["models"]["hub"] = {"hub": "some/model", "revision": "main"}
    raw_study["run"]["sizes"] = ["hub"]
    study = parse_study(raw_study)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert doctor.hub(study).level == "ok"
    monkeypatch.setattr("stapo.hub.time.sleep", lambda _: None)
    check = doctor.hub(study)
    assert check.what.startswith(f"{address} cannot be reached")
    assert (check.level, "stapo fetch STUDY --check" in check.remedy) == ("warning", True)


@NO_GPU
@pytest.mark.parametrize(
    ("backend", "needed", "errors"), [("hf", 1, 0), ("hf", 10**18, 1), ("vllm", 1, 2)]
)
def test_each_error_is_printed_with_its_remedy(
    raw_study, tmp_path, monkeypatch, backend, needed, errors
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "disk_needed", lambda _: needed)
    monkeypatch.setattr(doctor.toolchain, "compiler_faults", lambda: [("no compiler", "install")])
    raw_study["evaluation"]["backend"] = backend
    stream = io.StringIO()
    failed = print_diagnosis(parse_study(raw_study), Console(file=stream, width=100))
    levels = [line.split()[0] for line in stream.getvalue().splitlines()]
    assert set(levels) <= {"ok", "warning", "error", "->"}
    assert (levels.count("error"), failed) == (errors, errors > 0)
    assert levels.count("->") == levels.count("warning") + levels.count("error")
    assert os.listdir(tmp_path) == []
