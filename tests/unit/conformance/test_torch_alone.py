"""The objective and the conformance kit need torch, and nothing else."""

import subprocess
import sys

from stapo.repository import ROOT

ALONE = r"""
import importlib.abc
import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

def key(name):
    return re.sub("[-_.]+", "-", name).lower()

needed, unread = set(), ["torch"]
while unread:
    name = key(unread.pop())
    if name not in needed:
        needed.add(name)
        try:
            lines = [line for line in requires(name) or () if "extra ==" not in line]
        except PackageNotFoundError:  # Of another platform.
            lines = []
        unread += [re.match(r"[\w.-]+", line)[0] for line in lines]
known = {top for top, names in packages_distributions().items() if needed & set(map(key, names))}
allowed = known | set(sys.stdlib_module_names) | {"stapo", "pytorch_loop"}
assert not allowed & {"numpy", "pydantic", "yaml", "transformers", "trl", "accelerate", "rich", "typer"}

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"{name} is not allowed here", name=name)

sys.meta_path.insert(0, Refuse())

import torch
from pytorch_loop import accumulate
from stapo.conformance import Update, conventions, run_checks

def loop(batch, layout, method):
    leaf = batch.logps.clone().requires_grad_()
    parts = [torch.tensor(rows) for rank in layout for rows in rank]
    tables = batch.old_logps, batch.old_entropies, batch.advantages, batch.mask
    loss = accumulate(lambda rows: leaf[rows], *tables, parts, **method.selection_args)
    return Update(loss, leaf.grad)

checks = run_checks(loop, "stapo")
print(len(checks), all(check.holds for check in checks), conventions(loop, "stapo")["divisor"])
"""


def test_objective_and_kit_need_torch_alone():
    """A process in which what torch does not require cannot be imported, not even NumPy."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'docs' / 'recipes')!r}]"
    run = subprocess.run(
        [sys.executable, "-P", "-c", path + ALONE], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    number, holds, divisor = run.stdout.strip().split(" ", 2)
    assert (int(number) > 15, holds, divisor) == (True, "True", "kept tokens of the mini-batch")
