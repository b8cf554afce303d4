"""The verifier's template is fetched at a commit, checked, read out of source that never runs, and kept."""

import hashlib
import json
import shutil

import httpx
import pytest

from stapo.suite.models import base
from stapo.suite.models.base import verifier_template, write_base
from stapo.suite.paths import VERIFIER_TEMPLATE
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Verifier

SOURCE = b'''
raise SystemExit("run")
CV_PROMPT = """Is {llm_response} the {gold_answer} of {question}?"""
OTHER = "a" + "b"
'''
TEXT = "Is {llm_response} the {gold_answer} of {question}?"


@pytest.fixture(autouse=True)
def answers(tmp_path, monkeypatch) -> list[bytes]:
    """A cache of one's own, and what GitHub answers next."""
    found = [SOURCE]

    def get(address: str, **_: object) -> httpx.Response:
        revision = Verifier.template["revision"]
        assert address == f"{base.ADDRESS}/open-compass/CompassVerifier/{revision}/src/prompts.py"
        return httpx.Response(200, content=found[0], request=httpx.Request("GET", address))

    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setitem(Verifier.template, "sha256", hashlib.sha256(SOURCE).hexdigest())
    monkeypatch.setattr(httpx, "get", get)
    return found


def test_the_text_is_read_and_kept_and_nothing_is_run(answers, tmp_path, monkeypatch):
    answers[0] = SOURCE + b"#"
    with pytest.raises(StudyError, match=r"src/prompts\.py: SHA-256 is \w+, expected"):
        verifier_template()
    assert not (tmp_path / "cache").exists()
    answers[0] = SOURCE
    assert verifier_template() == TEXT
    # Kept by its checksum: without a network it is there, and a damaged copy is not believed.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert verifier_template() == TEXT
    (kept,) = (tmp_path / "cache" / "stapo").iterdir()
    kept.write_text("CV_PROMPT = 'altered'")
    with pytest.raises(StudyError, match="cannot be downloaded"):
        verifier_template()


def test_it_lies_beside_the_verifiers_weights_with_its_origin(model, tmp_path, monkeypatch):
    def snapshot(hub: str, revision: str, allow_patterns: list[str]) -> str:
        assert (hub, revision) == ("some/judge", "main")
        assert not {"*.py", "*.bin", "*"} & {*allow_patterns}
        folder = tmp_path / ("3" * 40)
        shutil.copytree(model, folder)
        (folder / "config.json").rename(tmp_path / "blob")
        (folder / "config.json").symlink_to(tmp_path / "blob")  # As in the Hub's cache.
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    out = tmp_path / "judge"
    write_base(Verifier(hub="some/judge", revision="main"), out)
    found = json.loads((out / VERIFIER_TEMPLATE).read_text())
    assert found == {**Verifier.template, "text": TEXT}
    assert not (out / "config.json").is_symlink()
    source = {"hub": "some/judge", "revision": "main", "commit": "3" * 40}
    assert json.loads((out / "source.json").read_text()) == source
