"""What is wrong with a machine is found by trying, and comes with its remedy."""

import io
import os

import pytest
import torch
from rich.console import Console

from stapo.operations import doctor
from stapo.operations.doctor import print_diagnosis
from stapo.study import parse_study

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@NO_GPU
@pytest.mark.parametrize(
    ("backend", "needed", "errors"), [("hf", 1, 0), ("hf", 10**18, 1), ("vllm", 1, 2)]
)
def test_each_error_is_printed_with_its_remedy(
    raw_study, tmp_path, monkeypatch, backend, needed, errors
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(doctor, "disk_needed", lambda _: needed)
    raw_study["evaluation"]["backend"] = backend
    stream = io.StringIO()
    failed = print_diagnosis(parse_study(raw_study), Console(file=stream, width=100))
    levels = [line.split()[0] for line in stream.getvalue().splitlines()]
    assert set(levels) <= {"ok", "error", "->"}
    assert (levels.count("error"), failed) == (errors, errors > 0)
    assert levels.count("->") == levels.count("error")
    assert os.listdir(tmp_path) == []
