"""Training prompts in a benchmark of the study's own, found before anything runs."""

import json
import sys
from pathlib import Path

import pytest

from stapo.cli import main
from stapo.models.arithmetic import benchmark_problems
from stapo.repository import STUDIES
from stapo.study import StudyError, read_study
from stapo.training.prompts import check_own_overlap, tiny_prompts

STUDY = """
extends: smoke
name: mine
benchmarks: {own: {file: q.jsonl, question: question, answer: answer, samples: 8}}
run: {benchmarks: [own, chain-2]}
"""
TINY = "is also a training prompt that tiny-arithmetic makes; remove it from this file"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose own benchmark has prompts of the smoke study in lines 3 and 5."""
    prompts = [one["question"] for one in tiny_prompts(read_study(STUDIES / "smoke.yaml").data)]
    held_out = [one.question for one in benchmark_problems("chain-3", 2)]
    lines(
        tmp_path / "q.jsonl", [held_out[0], "", prompts[7].upper() + " ", held_out[1], prompts[0]]
    )
    lines(tmp_path / "p.jsonl", [held_out[1], "other"])
    (tmp_path / "mine.yaml").write_text(STUDY)
    (tmp_path / "file.yaml").write_text(STUDY + "data: {file: p.jsonl}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path: Path, questions: list[str]) -> None:
    rows = [json.dumps({"question": one, "answer": 1}) if one else "" for one in questions]
    path.write_text("\n".join(rows))


def found(name: str) -> list[str]:
    with pytest.raises(StudyError) as error:
        check_own_overlap(read_study(Path(name)))
    return error.value.errors


def test_every_problem_that_is_a_prompt_is_named_with_its_line(folder):
    first, second = found("mine.yaml")
    assert first.startswith("benchmarks.own.file: q.jsonl, line 3: 'CHAIN:")
    assert second.startswith("benchmarks.own.file: q.jsonl, line 5: 'chain:")
    assert first.endswith(TINY)
    (only,) = found("file.yaml")
    assert only.startswith("benchmarks.own.file: q.jsonl, line 4: 'chain:")
    assert only.endswith("is also a training prompt, in p.jsonl; remove it from one of the files")


def test_check_refuses_it(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["stapo", "check", "mine.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert TINY in capsys.readouterr().err
