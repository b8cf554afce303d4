"""A verifier's template is fetched at a commit, checked, read out of source that never runs, and kept."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stapo.models import base
from stapo.models import template as module
from stapo.paths import VERIFIER_TEMPLATE
from stapo.study import StudyError
from stapo.study.schema import Template

REVISION = "5" * 40
TEXT = "Is {llm_response} the {gold_answer} of {question}? {{A}} or {{B}}"
SOURCE = f'''
from pathlib import Path
Path({{marker!r}}).touch()
OTHER = "no"
WORDING = """{TEXT}"""
JOINED = "a" + "b"
DEEP = "{{question.__class__}} {{gold_answer}} {{llm_response}}"
SHORT = "{{question}} {{gold_answer}}"
OPEN = "{{question}} {{gold_answer}} {{llm_response"
TWICE = "{{question}} {{question}} {{gold_answer}} {{llm_response}}"
'''


@pytest.fixture
def published(tmp_path, monkeypatch) -> Iterator[Callable[..., Template]]:
    """A server of one file; returns what names a variable in it."""
    content = SOURCE.replace("{marker!r}", repr(str(tmp_path / "ran"))).encode()
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(module, "ADDRESS", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def named(name: str, sha256: str = "") -> Template:
        digest = sha256 or hashlib.sha256(content).hexdigest()
        return Template(
            github="some/judge", revision=REVISION, file="src/p.py", name=name, sha256=digest
        )

    named.asked = asked  # type: ignore[attr-defined]
    yield named
    server.shutdown()


def test_the_text_is_read_and_kept_and_nothing_is_run(published, tmp_path, monkeypatch):
    template = published("WORDING")
    assert module.template_text(template) == TEXT
    assert published.asked == [f"/some/judge/{REVISION}/src/p.py"]
    assert not (tmp_path / "ran").exists()
    # Kept by its checksum: without a network it is there, and a damaged copy is not believed.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert module.template_text(template) == TEXT
    (kept,) = (tmp_path / "cache" / "stapo").iterdir()
    kept.write_text("WORDING = 'altered {question} {gold_answer} {llm_response}'")
    with pytest.raises(StudyError, match=r"cannot be downloaded.*template: own"):
        module.template_text(template)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("MISSING", "0 strings named MISSING"),
        ("JOINED", "0 strings named JOINED"),
        ("DEEP", "must have the fields question, gold_answer, llm_response, each once"),
        ("SHORT", "must have the fields question, gold_answer, llm_response, each once"),
        ("OPEN", "must have the fields question, gold_answer, llm_response, each once"),
        ("TWICE", "must have the fields question, gold_answer, llm_response, each once"),
    ],
)
def test_what_is_no_template_is_refused(published, name, why):
    with pytest.raises(StudyError, match=why):
        module.template_text(published(name))


@pytest.mark.parametrize("content", [b"# A title\n\nSome text.", b"\xff\xfe", b"a = 1\x00"])
def test_what_is_no_python_is_refused(published, monkeypatch, content):
    monkeypatch.setattr(module, "_downloaded", lambda _: content)
    with pytest.raises(StudyError, match=r"src/p\.py: not Python"):
        module.template_text(published("WORDING", hashlib.sha256(content).hexdigest()))


def test_another_file_than_the_study_pins_is_refused(published, tmp_path):
    with pytest.raises(StudyError, match=r"SHA-256 is \w+, expected 0000"):
        module.template_text(published("WORDING", "0" * 64))
    assert not (tmp_path / "cache").exists()


def test_it_lies_beside_the_verifiers_weights_with_its_origin(published, tmp_path, monkeypatch):
    def downloaded(model: object, path: Path) -> None:
        (path / "config.json").write_text("{}")

    monkeypatch.setattr(base, "_download", downloaded)
    template, out = published("WORDING"), tmp_path / "judge"
    base.write_base({"hub": "some/judge", "revision": "3" * 40}, out, template)
    found = json.loads((out / VERIFIER_TEMPLATE).read_text())
    assert found == {**template.model_dump(), "text": TEXT}
    assert VERIFIER_TEMPLATE in (out / "SHA256SUMS").read_text()
