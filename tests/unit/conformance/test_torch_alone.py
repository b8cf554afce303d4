"""The objective and the conformance kit need torch, and nothing else; the command line says what it needs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stapo.repository import ROOT

RECIPES = Path(__file__).parents[3] / "docs" / "recipes"

ALONE = """
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"{{name}} is not allowed here", name=name)

sys.meta_path.insert(0, Refuse())
"""
REFUSED = {
    "numpy", "pydantic", "yaml", "transformers", "trl", "accelerate", "rich", "typer", "datasets", "tqdm",
    "pandas", "pyarrow", "click", "huggingface_hub", "safetensors", "scipy",
}  # fmt: skip
"""What torch does not require; `make test-torch` runs where nothing else is installed."""


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which what torch does not require cannot be imported."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(RECIPES)!r}]"
    command = [sys.executable, "-P", "-c", path + ALONE.format(refused=REFUSED) + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_objective_and_kit_need_torch_alone():
    run = run_alone("import pytorch_loop, stapo.conformance, stapo.objective")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "code", ["import stapo.cli", 'import runpy; runpy.run_module("stapo", run_name="__main__")']
)
def test_the_command_line_says_what_to_install(code):
    run = run_alone(code)
    assert run.returncode == 2
    assert re.fullmatch(r"stapo: \w+ is not installed: pip install 'stapo\[suite\]'\n", run.stderr)
