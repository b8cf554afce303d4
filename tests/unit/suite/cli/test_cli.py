"""`stapo`: wrong input is a line and code 2, errors of the machine a line and code 1, `--json` a document."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from stapo.core.files import DamagedFileError
from stapo.suite import cli
from stapo.suite.cli import main
from stapo.suite.repository import STUDIES

SMOKE = str(STUDIES / "quickstart" / "smoke.yaml")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty directory; return its exit code, its output and its errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stapo", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("check nope.yaml", 2, "nope.yaml: No such file or directory"),
        ("check smok", 2, "no study of this name in workflows/studies; did you mean smoke?"),
        (f"run nope --study {SMOKE}", 2, "stage: unknown name 'nope'; known: "),
        (f"run train tiny/nope --study {SMOKE}", 2, "train: unknown job 'tiny/nope'; known: tiny"),
        (f"run train --study {SMOKE}", 2, "results/smoke/models/tiny/base.json: missing; make it"),
        (f"run intervene --study {SMOKE}", 2, "none; the study has no intervene"),
        ("plan smoke --gpu h1000", 2, "--gpu: unknown device 'h1000'; known: h200"),
        ("verify nope", 2, "nope: no results folder"),
        ("run prompts --study {", 2, "study.json: truncated or corrupt"),
        ("run prompts --study work/x/studies/1.json", 2, "Snakemake writes it when a run starts"),
        (f"show {SMOKE}", 1, "smoke: no scores yet"),
    ],
)
def test_one_line_and_the_right_code(run, arguments, code, line):
    words = arguments.split()
    if words[-1] == "{":
        Path("study.json").write_text(words[-1])
        words[-1] = "study.json"
    found, _, said = run(*words)
    assert found == code, said
    assert any(one.startswith("stapo: ") and line in one for one in said.splitlines()), said
    assert "Traceback" not in said
    if "--json" in run(words[0], "-h")[1]:
        found, document, _ = run(*words, "--json")
        assert (found, list(json.loads(document))) == (code, ["errors"])


HIDDEN = KeyError("x")
HIDDEN.__cause__ = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "lines", "code"),
    [
        (DamagedFileError("a: cut; x\nb: cut; x"), ["a: cut; x", "b: cut; x"], 1),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "f"), ["no space left"], 1),
        # What writers of weights and tokenizers raise, and a library that hides its cause.
        (RuntimeError("[enforce fail at inline_container.cc:672] . x"), ["no space left"], 1),
        (Exception("No space left on device (os error 28)"), ["no space left"], 1),
        (HIDDEN, ["no space left"], 1),
        (PermissionError(errno.EACCES, "Permission denied", "f"), ["f: Permission denied"], 1),
        # Ctrl-C, and what Typer makes of it.
        (KeyboardInterrupt(), ["stopped; run the same command to resume"], 130),
        (SystemExit(130), ["stopped; run the same command to resume"], 130),
    ],
)
def test_errors_of_the_machine_are_a_line_each(run, monkeypatch, error, lines, code):
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    returned, _, said = run()
    assert returned == code
    assert len(said.splitlines()) == len(lines)
    for found, line in zip(said.splitlines(), lines, strict=True):
        assert found.startswith(f"stapo: {line}")
