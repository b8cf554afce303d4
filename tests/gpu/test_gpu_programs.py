"""The programs of `make gpu` run on a CPU with tiny sizes: only kernels and speed are left to see."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stapo.repository import ROOT

TABLES = {"attention": {"Forward and backward pass": 4}, "vllm": {"vLLM": 1}}


def run(name: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"gpu.{name}", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_program_writes_all_its_tables(name: str, tmp_path):
    told = run(name, "--tiny", "--out", tmp_path)
    tables = json.loads((tmp_path / f"{name}.json").read_text())["tables"]
    assert {title: len(rows) for title, rows in tables.items()} == TABLES[name]
    assert all(title in told for title in tables)


@pytest.mark.parametrize("name", TABLES)
def test_without_a_gpu_a_program_says_that_it_was_not_run(name: str, tmp_path):
    told = run(name, "--out", tmp_path)
    said = f"no GPU: tests/gpu/{name}.py was not run; run `make gpu` on a machine with one\n"
    assert told == said
    assert not list(tmp_path.iterdir())
