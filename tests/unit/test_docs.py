"""What the documentation shows works."""

import re
from shutil import copytree

import pytest
import torch

from stapo.suite.repository import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    ROOT / "results" / "README.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "examples" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "workflows" / "studies").glob("*/README.md"),
]


def python_blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve_and_python_runs(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    generator = torch.Generator().manual_seed(0)
    logps = (torch.randn(4, 6, generator=generator) - 3).requires_grad_()
    for block in python_blocks(text):
        # What is a part of a file is run by tests/extensions.
        if "Trainer" in block or block.startswith(("# stapo/", "# workflows/")):
            continue
        names = {
            "logps": logps,
            "old_logps": logps.detach(),
            "old_entropies": torch.rand(4, 6, generator=generator),
            "advantages": torch.tensor([1.0, -1.0, 0.0, 2.0]),
            "mask": torch.ones(4, 6, dtype=torch.bool),
        }
        exec(block, names)
        assert torch.isfinite(names["loss"])


def test_the_example_for_users_of_trl_trains(world, tmp_path, monkeypatch):
    page = (ROOT / "examples" / "README.md").read_text()
    (block,) = [b for b in python_blocks(page) if "Trainer" in b]
    smoke = tmp_path / "results" / "smoke"
    copytree(world / "base", smoke / "models" / "tiny" / "base")
    copytree(world, smoke / "data")  # Its prompts are read.
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    assert (tmp_path / "by-hand" / "checkpoint-4" / "model.safetensors").exists()
