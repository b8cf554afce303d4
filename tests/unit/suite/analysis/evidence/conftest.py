"""Studies with synthetic token records."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_tokens import ALL, write_study

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.study import Study, parse_study


def small(raw: dict[str, Any], **run: Any) -> Study:
    raw = copy.deepcopy(raw) | {"name": "demo"}
    raw["training"] |= {"steps": 4, "prompts_per_batch": 16}
    raw["run"] |= {"methods": ["justrl", "stapo"], **run}
    return parse_study(raw)


@pytest.fixture
def study(raw_study: dict[str, Any]) -> Study:
    return small(raw_study)


@pytest.fixture
def complete(study: Study, tmp_path: Path) -> tuple[Artefacts, dict[str, pd.DataFrame]]:
    """Two methods, of which every token was recorded, and their tokens by method."""
    truth = write_study(tmp_path / "all", study, ALL, slips=0.08)
    return Artefacts(study, tmp_path / "all"), {run.method: own for run, own in truth.items()}


@pytest.fixture
def several(raw_study: dict[str, Any], tmp_path: Path) -> Artefacts:
    tiny = raw_study["models"]["tiny"]
    raw = raw_study | {"models": {"small": tiny, "large": tiny}}
    found = small(raw, models=["small", "large"], seeds=[0, 1, 2])
    write_study(tmp_path / "several", found)
    return Artefacts(found, tmp_path / "several")


@pytest.fixture
def empty(study: Study, tmp_path: Path) -> Artefacts:
    write_study(tmp_path / "empty", study, dict.fromkeys(ALL, 0))
    return Artefacts(study, tmp_path / "empty")


@pytest.fixture
def without_candidates(study: Study, tmp_path: Path) -> Artefacts:
    write_study(tmp_path / "none", study, tau_p=0.0)
    return Artefacts(study, tmp_path / "none")
