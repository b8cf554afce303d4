"""The objective and the conformance kit need torch, and nothing else; the command line says what it needs."""

import re
from pathlib import Path

from programs import python

from stapo.suite.repository import ROOT

REFUSED = (
    "numpy", "pydantic", "yaml", "transformers", "trl", "accelerate", "rich", "typer", "datasets", "tqdm",
    "pandas", "pyarrow", "click", "huggingface_hub", "safetensors", "scipy",
)  # fmt: skip
"""What torch does not require; `make test-torch` runs where nothing else is installed."""


def run_alone(script: str, code: int = 0) -> str:
    """Run a script to its end, which must have this exit code; return its errors."""
    places = [*map(str, (ROOT, ROOT / "examples", ROOT / "tests", Path(__file__).parent))]
    start = f"import sys; sys.path[:0] = {places!r}; sys.modules |= dict.fromkeys({REFUSED!r})\n"
    return python("-P", "-c", start + script, code=code).stderr


def test_objective_and_kit_need_torch_alone():
    run_alone("import pytorch_loop, stapo.core.conformance, stapo.core.objective")


JUDGED = "from stapo.core.conformance.__main__ import main; sys.exit(main([TRAINER]))"


def test_the_kit_judges_a_trainer_where_torch_alone_is_installed():
    run_alone(JUDGED.replace("TRAINER", "'test_conformance:trainer'"))
    absent = JUDGED.replace("TRAINER", "'test_conformance:absent'")
    assert "AttributeError" in run_alone(absent, code=2)
    assert "usage: " in run_alone(JUDGED.replace("TRAINER", ""), code=2)


def test_the_command_line_says_what_to_install():
    said = run_alone('import runpy; runpy.run_module("stapo", run_name="__main__")', code=2)
    line = r"stapo: \w+ is not installed; in a clone: pip install '\.\[suite\]'\n"
    assert re.fullmatch(line, said)
