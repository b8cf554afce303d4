"""Finished studies made of synthetic files."""

from pathlib import Path
from typing import Any

import pytest
from finished_study import finish

from stapo.suite.study import Study, parse_study


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
