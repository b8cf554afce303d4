"""Finished studies made of synthetic files."""

from pathlib import Path
from typing import Any

import pytest
from finished_study import finish

from stapo.methods import BASELINES
from stapo.reference import paper
from stapo.study import Study, parse_study


@pytest.fixture
def study(raw_study: dict[str, Any]) -> Study:
    raw_study["name"] = "demo"
    raw_study["run"]["decodings"] = ["t1.0-p1.0"]
    raw_study["run"]["benchmarks"] = ["chain-2", "linear-equation"]
    raw_study["methods"] = {"grpo": {"title": "G_R&P|O <b>"}}
    return parse_study(raw_study)


@pytest.fixture
def finished(study: Study, tmp_path: Path) -> Path:
    return finish(study, tmp_path)


@pytest.fixture
def finished_on_hub_models(raw_study: dict[str, Any], tmp_path: Path) -> tuple[Study, Path]:
    """The paper's smallest size under both revisions of STAPO, on its six benchmarks."""
    raw_study |= {"name": "demo", "methods": {"stapo-v2": {"tau_p": 0.01}}}
    raw_study["benchmarks"] = {name: {"samples": 10} for name in paper()["benchmarks"]}
    raw_study["run"] |= {
        "sizes": ["1.7B"],
        "methods": [*BASELINES, "stapo", "stapo-v2"],
        "decodings": ["t1.0-p1.0"],
        "benchmarks": paper()["benchmarks"],
    }
    study = parse_study(raw_study)
    return study, finish(study, tmp_path)
