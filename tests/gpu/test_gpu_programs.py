"""The program of `make gpu` runs on a CPU with tiny sizes: only kernels and speed are left to see.

`make test-vllm` runs this with vLLM.
"""

import json
from importlib.util import find_spec

import pytest
from programs import python

from stapo.suite.repository import ROOT


@pytest.mark.slow
def test_it_writes_its_table_and_without_a_gpu_says_that_it_was_not_run(tmp_path):
    out, told = tmp_path / "vllm.json", []
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT}/tests", "CUDA_VISIBLE_DEVICES": ""}
    for tiny in ([], ["--tiny"]):
        assert not out.exists()
        told.append(python("-m", "gpu.vllm", "--out", tmp_path, *tiny, **environment).stdout)
    said = "no GPU: tests/gpu/vllm.py was not run; run `make gpu` on a machine with one\n"
    assert told[0] == said
    tables = json.loads(out.read_text())["tables"]
    shown = {"vLLM": 1}
    if find_spec("vllm"):
        shown = {"Left out on a CPU": 1, "Rollouts, each after a transfer of weights": 3}
    assert {title: len(rows) for title, rows in tables.items()} == shown
    assert "vLLM" in told[1]
