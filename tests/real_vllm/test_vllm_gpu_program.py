"""The program of `make gpu` that needs vLLM, on the CPU with tiny sizes; `make test-vllm` runs this."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("vllm", reason="make test-vllm")

from stapo.repository import ROOT

ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "VLLM_CPU_KVCACHE_SPACE": "1"}


def test_it_measures_three_rollouts_and_says_what_a_cpu_leaves_out(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gpu.vllm", "--tiny", "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests", **ON_CPU},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tables = json.loads((tmp_path / "vllm.json").read_text())["tables"]
    rollouts = tables["Rollouts, each after a transfer of weights"]
    assert [row["step"] for row in rollouts] == [0, 2, 4]
    # Single precision on both sides: 2e-6 was measured.
    assert 0 < max(row["largest"] for row in rollouts) < 1e-4
