"""The objective and the conformance kit need torch, and nothing else; the command line says what it needs."""

import re
import subprocess
import sys

from stapo.repository import ROOT

REFUSED = (
    "numpy", "pydantic", "yaml", "transformers", "trl", "accelerate", "rich", "typer", "datasets", "tqdm",
    "pandas", "pyarrow", "click", "huggingface_hub", "safetensors", "scipy",
)  # fmt: skip
"""What torch does not require; `make test-torch` runs where nothing else is installed."""


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    places = [str(ROOT), str(ROOT / "docs" / "recipes")]
    start = f"import sys; sys.path[:0] = {places!r}; sys.modules |= dict.fromkeys({REFUSED!r})\n"
    command = [sys.executable, "-P", "-c", start + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_objective_and_kit_need_torch_alone():
    run = run_alone("import pytorch_loop, stapo.conformance, stapo.objective")
    assert run.returncode == 0, run.stderr


def test_the_command_line_says_what_to_install():
    run = run_alone('import runpy; runpy.run_module("stapo", run_name="__main__")')
    assert run.returncode == 2
    assert re.fullmatch(
        r"stapo: \w+ is not installed; in a clone: pip install '\.\[suite\]'\n", run.stderr
    )
