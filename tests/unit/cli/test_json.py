"""`--json` prints one document with the keys of docs/command-line.md, and the exit codes stay."""

import json
import re
import sys

import pytest
import yaml
from finished_study import finish
from rich.console import Console
from stapo.operations.file_system import Check

from stapo.cli import main
from stapo.operations import doctor
from stapo.publication import verify
from stapo.repository import ROOT, STUDIES
from stapo.study import parse_study

SMOKE = str(STUDIES / "smoke.yaml")
ROW = re.compile(r"^\| (\w+) \| (`[^|]*) \| (.*) \|$", re.MULTILINE)


def documented(command: str) -> dict[str, list[str]]:
    """Return each key of a document to the keys of its items, as the page has them."""
    rows = ROW.findall((ROOT / "docs" / "command-line.md").read_text())
    return {
        key: re.findall(r"`(\w+)`", content)
        for of, keys, content in rows
        if of == command
        for key in re.findall(r"`(\w+)`", keys)
    }


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty directory; return its exit code and its document."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["stapo", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, json.loads(capsys.readouterr().out)

    return call


def keys_of(items: list[dict]) -> set[str]:
    return {key for item in items for key in item}


@pytest.mark.parametrize("command", ["check", "plan", "status"])
def test_a_document_has_the_documented_keys(run, command):
    code, document = run(command, SMOKE, "--json")
    assert code == 0
    assert list(document) == list(documented(command))
    assert document["study"] == "smoke"


def test_the_items_of_a_document_have_the_documented_keys(run):
    _, plan = run("plan", SMOKE, "--json")
    assert keys_of(plan["rows"]) == set(documented("plan")["rows"]) - {"estimated", "measured"}
    _, status = run("status", SMOKE, "--json")
    assert len(status["trainings"]) == 4
    for part in ("trainings", "evaluations"):
        assert keys_of(status[part]) == set(documented("status")[part])


def test_a_plan_that_may_not_fit_is_a_plan(run):
    code, document = run("plan", str(STUDIES / "paper.yaml"), "--gpu", "a100", "--json")
    assert code == 0
    assert document["too_large"]


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("warning", 0), ("error", 1)])
def test_doctor(run, monkeypatch, level, code):
    def checks(study, needed_bytes):
        yield Check(level, "what", "remedy")

    monkeypatch.setattr("stapo.operations.documents.diagnose", checks)
    found, document = run("doctor", SMOKE, "--json")
    assert found == code
    assert list(document) == list(documented("doctor"))
    assert document["checks"] == [{"level": level, "what": "what", "remedy": "remedy"}]
    assert {"level", "what", "remedy"} <= set(documented("doctor")["checks"])
    # The text says the same.
    monkeypatch.setattr(doctor, "diagnose", checks)
    assert doctor.print_diagnosis(None, Console(quiet=True)) == (code == 1)


def test_show(run, tmp_path, raw_study):
    raw_study["run"]["decodings"] = ["t1.0-p1.0"]
    finish(parse_study(raw_study), tmp_path)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(raw_study))
    code, document = run("show", "study.yaml", "--json")
    assert code == 0
    assert list(document) == list(documented("show"))
    assert document["values"][0]["metric"].startswith("avg@")
    assert document["report"] == "results/smoke/report.html"


def test_verify(run, tmp_path, raw_study, monkeypatch):
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "SHA256SUMS").write_text("")
    about = {"study": parse_study(raw_study).model_dump(mode="json", exclude_none=True)}
    (folder / "provenance.json").write_text(json.dumps(about))
    code, refused = run("verify", str(folder), "--json")
    assert (code, refused["sha256"]) == (1, None)
    errors = [str(number) for number in range(2 * verify.SHOWN)]
    monkeypatch.setattr(verify, "admit", lambda *_: ({}, []))
    monkeypatch.setattr(verify, "_notes", lambda _: ["a note"])
    checks = {"first": lambda _: errors, "second": lambda _: []}
    monkeypatch.setattr(verify, "CHECKS", checks)  # Without files, there is no raw data.
    code, document = run("verify", str(folder), "--json")
    assert code == 1
    assert list(document) == list(refused) == list(documented("verify"))
    # All errors, not only those that a screen shows.
    assert document["checks"] == [
        {"level": "error", "what": "first", "errors": errors},
        {"level": "ok", "what": "second", "errors": []},
    ]
    assert set(documented("verify")["checks"]) == {"level", "ok", "error", "what", "errors"}
    assert document["notes"] == ["a note"]
    assert len(document["sha256"]) == 64


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("check nope.yaml", 2), ("verify nope", 2), (f"show {SMOKE}", 1)],
)
def test_wrong_input_is_a_document_too(run, arguments, code):
    found, document = run(*arguments.split(), "--json")
    assert found == code
    assert list(document) == ["errors"]
    assert document["errors"]
