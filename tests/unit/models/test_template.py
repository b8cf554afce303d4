"""A verifier's template is fetched at a commit, checked, read out of source that never runs, and kept."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from stapo.models import base
from stapo.models.base import template_text
from stapo.paths import VERIFIER_TEMPLATE
from stapo.study import StudyError
from stapo.study.schema import Template

REVISION = "5" * 40
TEXT = "Is {llm_response} the {gold_answer} of {question}? {{A}} or {{B}}"
SOURCE = f'''
raise SystemExit("run")
WORDING = """{TEXT}"""
JOINED = "a" + "b"
DEEP = "{{question.__class__}} {{gold_answer}} {{llm_response}}"
SPELT = "{{question!r}} {{question}} {{gold_answer}} {{llm_response}}"
SHORT = "{{question}} {{gold_answer}}"
OPEN = "{{question}} {{gold_answer}} {{llm_response"
TWICE = "{{question}} {{question}} {{gold_answer}} {{llm_response}}"
'''.encode()
FIELDS = "must have the fields question, gold_answer, llm_response, each once"


@pytest.fixture
def published(tmp_path, monkeypatch) -> Callable[..., Template]:
    """Return what names a variable of a file that is the answer to every request."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))

    def named(name: str, content: bytes = SOURCE, sha256: str = "") -> Template:
        def get(address: str, **_: object) -> httpx.Response:
            assert address == f"{base.ADDRESS}/some/judge/{REVISION}/src/p.py"
            return httpx.Response(200, content=content, request=httpx.Request("GET", address))

        monkeypatch.setattr(httpx, "get", get)
        sha256 = sha256 or hashlib.sha256(content).hexdigest()
        about = {"github": "some/judge", "revision": REVISION, "file": "src/p.py"}
        return Template(**about, name=name, sha256=sha256)

    return named


def test_the_text_is_read_and_kept_and_nothing_is_run(published, tmp_path, monkeypatch):
    template = published("WORDING")
    assert template_text(template) == TEXT
    # Kept by its checksum: without a network it is there, and a damaged copy is not believed.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert template_text(template) == TEXT
    (kept,) = (tmp_path / "cache" / "stapo").iterdir()
    kept.write_text("WORDING = 'altered {question} {gold_answer} {llm_response}'")
    with pytest.raises(StudyError, match=r"cannot be downloaded.*template: own"):
        template_text(template)


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (("MISSING",), "0 strings named MISSING"),
        (("JOINED",), "0 strings named JOINED"),
        *(((name,), FIELDS) for name in ("DEEP", "SPELT", "SHORT", "OPEN", "TWICE")),
        *((("A", text), "not Python") for text in (b"# A title\n\nText here.", b"\xff", b"a = 1\x00")),
        (("WORDING", SOURCE, "0" * 64), r"SHA-256 is \w+, expected 0000"),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused(published, tmp_path, named, why):
    with pytest.raises(StudyError, match=why):
        template_text(published(*named))
    assert "SHA" not in why or not (tmp_path / "cache").exists()


def test_it_lies_beside_the_verifiers_weights_with_its_origin(published, tmp_path, monkeypatch):
    """Of a model of the Hub, only what is no code and no pickle is asked for; its commit is written."""

    def snapshot(hub: str, revision: str, allow_patterns: list[str]) -> str:
        assert (hub, revision) == ("some/judge", "main")
        assert not {"*.py", "*.bin", "*"} & {*allow_patterns}
        folder = tmp_path / ("3" * 40)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    template, out = published("WORDING"), tmp_path / "judge"
    base.write_base({"hub": "some/judge", "revision": "main"}, out, template)
    found = json.loads((out / VERIFIER_TEMPLATE).read_text())
    assert found == {**template.model_dump(), "text": TEXT}
    assert VERIFIER_TEMPLATE in (out / "SHA256SUMS").read_text()
    source = {"hub": "some/judge", "revision": "main", "commit": Path("3" * 40).name}
    assert json.loads((out / "source.json").read_text()) == source
