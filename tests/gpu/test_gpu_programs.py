"""The programs of `make gpu` run on a CPU with tiny sizes: only kernels and speed are left to see."""

import json
import os
import subprocess
import sys

import pytest

from stapo.repository import ROOT

TABLES = {"attention": {"Forward and backward pass": 4}, "vllm": {"vLLM": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_program_writes_all_its_tables_and_without_a_gpu_says_that_it_was_not_run(name, tmp_path):
    out, told = tmp_path / f"{name}.json", []
    for tiny in ([], ["--tiny"]):
        assert not out.exists()
        done = subprocess.run(
            [sys.executable, "-m", f"gpu.{name}", "--out", str(tmp_path), *tiny],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    said = f"no GPU: tests/gpu/{name}.py was not run; run `make gpu` on a machine with one\n"
    assert told[0] == said
    tables = json.loads(out.read_text())["tables"]
    assert {title: len(rows) for title, rows in tables.items()} == TABLES[name]
    assert all(title in told[1] for title in tables)
