"""Everything is got or named as missing."""

from typing import Any

import pytest

from stapo.suite.evaluation.task import DATA_DIR
from stapo.suite.operations.fetch import fetch
from stapo.suite.study import parse_study
from stapo.suite.study.files import rows_checksum

ROWS = [{"question": f"{i}?", "answer": str(i)} for i in range(3)]


@pytest.fixture
def study(raw_study, monkeypatch):
    definition = {
        "task": "stapo_made",
        "metadata": {
            "hub": "some/set", "revision": "main", "split": "test", "names": ["Made"],
            "rows": 3, "sha256": rows_checksum(ROWS), "version": 1,
        },
    }  # fmt: skip
    for place in ("stapo.suite.study.checks", "stapo.suite.study.study"):
        monkeypatch.setattr(f"{place}.benchmark_definitions", lambda: {"made": definition})
    monkeypatch.setattr("stapo.suite.models.base.verifier_template", lambda: "")
    raw_study["models"]["hub"] = {"hub": "some/model", "revision": "1" * 40}
    raw_study["data"] = {"hub": "some/prompts", "revision": "2" * 40}
    raw_study["evaluation"]["verifier"] = {"hub": "some/judge", "revision": "3" * 40}
    raw_study["benchmarks"] = {"made": {"samples": 1}}
    raw_study["run"] |= {"models": ["tiny", "hub"], "benchmarks": ["made"]}
    return parse_study(raw_study)


def test_each_item_is_got_and_a_failure_stops_no_other(study, monkeypatch, tmp_path):
    asked: list[str] = []

    def snapshot(hub: str, **kwargs: Any) -> str:
        asked.append(f"{hub} {kwargs['revision'][0]}")
        if hub == "some/judge":
            raise OSError("no network\nand more")
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    monkeypatch.setattr("datasets.load_dataset", lambda hub, **_: asked.append(hub) or ROWS)
    monkeypatch.delenv(DATA_DIR, raising=False)
    said: list[str] = []
    assert not fetch(study, said.append)
    assert asked == ["some/model 1", "some/judge 3", "some/prompts", "some/set"]
    assert [line.split()[0] for line in said] == ["ok", "missing", "ok", "ok", "ok"]
    wording = "CV_PROMPT of open-compass/CompassVerifier at 2d7cba6d"
    assert said[2] == f"ok       verifier's template: {wording}"
    assert said[1] == "missing  verifier: some/judge at 33333333: no network"
