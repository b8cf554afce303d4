"""One world for all trainings of the session, and one finished training in it."""

from pathlib import Path
from typing import Any

import pytest
from one_update import build
from training_jobs import run

from stapo.models.tiny import build_tiny
from stapo.study.sources import TinyData, TinyModel
from stapo.training.prompts import write_prompts


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Path:
    """A base model of a few supervised steps, and prompts."""
    root = tmp_path_factory.mktemp("world")
    settings = TinyModel(
        builder="tiny-arithmetic", supervised_steps=40, supervised_batch=48, hidden_size=64
    )
    build_tiny(settings, root / "base")
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), root / "prompts.jsonl")
    return root


@pytest.fixture(scope="session")
def reference(world, tmp_path_factory) -> Path:
    """A training of six steps without interruption."""
    out = tmp_path_factory.mktemp("reference")
    run(world, out)
    return out


@pytest.fixture(scope="module", params=[False, True], ids=["padded", "packed"])
def base(tmp_path_factory, request) -> Any:
    """A trainer, a mini-batch, and a copy of the policy."""
    return build(tmp_path_factory.mktemp("trainer"), request.param)
