"""Fixtures of all tests: a small study as a dictionary, which each test may change, and a tiny model."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from programs import made_once

from stapo.suite.repository import CATALOGUE, STUDIES

# Set before torch is imported, here and in subprocesses: two processes with two threads each would slow each
# other down. `tests/other_cpus.sh` sets other numbers.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def raw_study() -> dict[str, Any]:
    """The smoke study, merged over the catalogue as Snakemake does."""
    import yaml  # Not at the top: tests of the objective run where torch alone is installed.

    from stapo.suite.study import merge

    files = (CATALOGUE, STUDIES / "quickstart" / "smoke.yaml")
    return merge(*(yaml.safe_load(path.read_text()) for path in files))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of a few supervised steps, and prompts."""
    from stapo.suite.models.tiny import build_tiny
    from stapo.suite.study.sources import TinyData, TinyModel
    from stapo.suite.training.prompts import write_prompts

    def make(root: Path) -> None:
        steps = {"supervised_steps": 40, "supervised_batch": 48}
        build_tiny(TinyModel(builder="tiny-arithmetic", hidden_size=64, **steps), root / "base")
        write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), root / "prompts.jsonl")

    return made_once(tmp_path_factory, "world", make)


@pytest.fixture(scope="session")
def model(world: Path) -> Path:
    return world / "base"


@pytest.fixture
def folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of the model, `weights`."""
    shutil.copytree(model, tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path
