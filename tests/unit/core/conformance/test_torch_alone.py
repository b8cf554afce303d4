"""The objective and the conformance kit need torch, and nothing else; the command line says what it needs."""

import re

from programs import python

from stapo.suite.repository import ROOT

REFUSED = (
    "numpy", "pydantic", "yaml", "transformers", "trl", "accelerate", "rich", "typer", "datasets", "tqdm",
    "pandas", "pyarrow", "click", "huggingface_hub", "safetensors", "scipy",
)  # fmt: skip
"""What torch does not require; `make test-torch` runs where nothing else is installed."""


def run_alone(script: str, code: int = 0) -> str:
    """Run a script to its end, which must have this exit code; return its errors."""
    places = [str(ROOT), str(ROOT / "examples")]
    start = f"import sys; sys.path[:0] = {places!r}; sys.modules |= dict.fromkeys({REFUSED!r})\n"
    return python("-P", "-c", start + script, code=code).stderr


def test_objective_and_kit_need_torch_alone():
    run_alone("import pytorch_loop, stapo.core.conformance, stapo.core.objective")


JUDGED = """
import torch, types, pytorch_loop
from stapo.core.conformance import Update
from stapo.core.conformance.__main__ import main
def update(batch, partition, method):
    leaf = batch.logps.clone().requires_grad_()
    rows = [torch.tensor(rows) for rank in partition for rows in rank]
    tables = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    limits = method.arguments_of("selection")
    return Update(pytorch_loop.accumulate(lambda rows: leaf[rows], *tables, rows, **limits), leaf.grad)
sys.modules["mine"] = types.SimpleNamespace(update=update)
sys.exit(main([TRAINER]))
"""


def test_the_kit_judges_a_trainer_where_torch_alone_is_installed():
    run_alone(JUDGED.replace("TRAINER", "'mine:update'"))
    assert "AttributeError" in run_alone(JUDGED.replace("TRAINER", "'mine:absent'"), code=2)
    assert "usage: " in run_alone(JUDGED.replace("TRAINER", ""), code=2)


def test_the_command_line_says_what_to_install():
    said = run_alone('import runpy; runpy.run_module("stapo", run_name="__main__")', code=2)
    line = r"stapo: \w+ is not installed; in a clone: pip install '\.\[suite\]'\n"
    assert re.fullmatch(line, said)
