"""What the documentation shows works."""

import re

import pytest
import torch

from stapo.study import ROOT

PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve_and_python_runs(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    generator = torch.Generator().manual_seed(0)
    logps = (torch.randn(4, 6, generator=generator) - 3).requires_grad_()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        names = {
            "logps": logps,
            "old_logps": logps.detach(),
            "entropies": torch.rand(4, 6, generator=generator),
            "advantages": torch.tensor([1.0, -1.0, 0.0, 2.0]),
            "mask": torch.ones(4, 6, dtype=torch.bool),
        }
        exec(block, names)
        assert torch.isfinite(names["loss"])
