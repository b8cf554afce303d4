"""The study of a real language model, reduced: its model from the package index, one rollout, its table."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import python
from world import World

from stapo.suite.repository import ROOT
from stapo.suite.study.reading import merge, shipped

SMALLER = {
    "data": {"prompts": 64},
    "training": {
        "steps": 2, "prompts_per_batch": 4, "prompts_per_mini_batch": 2, "group_size": 4,
        "max_response_tokens": 8,
    },
    "benchmarks": {"words": {"rows": 8}},
    "evaluation": {"max_response_tokens": 8},
    "run": {"methods": ["stapo"], "seeds": [0], "benchmarks": ["words"], "decodings": ["t1.0-p1.0"]},
    "interventions": {"checkpoints": []},
    "compare": None,
}  # fmt: skip


DOMAIN = {"benchmarks": {"sums": {"rows": 8}}, "run": {"benchmarks": ["sums"]}}
"""The same of a task of reasoning-gym, which judges in training and evaluation."""


@pytest.mark.parametrize(("name", "also"), [("smollm2-words", {}), ("sums", DOMAIN)])
def test_a_real_model_goes_from_the_package_index_to_its_table(
    tmp_path: Path, name: str, also: dict[str, Any]
) -> None:
    world = World(tmp_path / "study", yaml.safe_load(shipped(name).read_text()))
    world.change(merge(SMALLER, also))
    world.run("--show-failed-logs")
    folder = world.path / "results" / name
    assert "Base" in (folder / "tables" / "main-t1.0-p1.0.md").read_text()
    python("-P", "-m", "stapo", "verify", folder, at=ROOT)
