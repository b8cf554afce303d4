"""Wrong arguments end with one line that names them and exit code 2, or 1 where a file is missing."""

import errno
import os
import sys
from pathlib import Path

import pytest
import yaml

from stapo import cli
from stapo.cli import main
from stapo.files import DamagedFileError
from stapo.repository import STUDIES
from stapo.study import parse_study
from stapo.study.origin import write_origin

STUDY = str(STUDIES / "smoke.yaml")
CELL = "--checkpoint tiny/base --decoding t1.0-p1.0 --benchmark chain-2"
JUDGED = '{"extends":"smoke","name":"x","evaluation":{"verifier":{"hub":"a/b","revision":"main"}}}'
TRAIN = "--seed 0 --base b --prompts nope.jsonl --work w --out o --metrics m"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("check nope.yaml", 2, "nope.yaml: No such file or directory"),
        (f"train --study {STUDY} --size nope --method stapo {TRAIN}", 2, "--size: unknown name"),
        (f"train --study {STUDY} --size tiny --method nope {TRAIN}", 2, "--method: unknown name"),
        (f"train --study {STUDY} --size tiny --method stapo {TRAIN}", 2, "no training prompts"),
        (
            f"generate --study {STUDY} --checkpoint tiny/bas --decoding t1.0-p1.0 --model m --work w --out o",
            2,
            "--checkpoint: unknown name 'tiny/bas'; known: tiny/base",
        ),
        (
            f"generate --study {STUDY} --checkpoint tiny/base --decoding hot --model m --work w --out o",
            2,
            "--decoding: unknown name 'hot'",
        ),
        (
            f"intervene --study {STUDY} --checkpoint tiny/bas --model m --prompts nope --out o",
            2,
            "--checkpoint: unknown name 'tiny/bas'; known: tiny/base",
        ),
        (
            f"intervene --study {STUDY} --checkpoint tiny/base --model m --prompts nope --out o",
            2,
            "--prompts: nope is no file",
        ),
        (f"table --study {STUDY} --decoding hot", 2, "--decoding: unknown name 'hot'"),
        (f"figure --study {STUDY} --name nope", 2, "--name: unknown name 'nope'; known: entropy"),
        (
            f"figure --study {STUDY} --name accuracy",
            2,
            "--name: accuracy needs intermediate checkpoints (training.evaluate_every",
        ),
        (
            f"evidence --study {STUDY} --name interventions",
            2,
            "--name: interventions needs interventions (interventions.checkpoints), which this study lacks",
        ),
        ("overlap --prompts nope --benchmark chain-3 --out o", 2, "nope: no training prompts"),
        ("overlap --prompts nope --benchmark chain-9 --out o", 2, "--benchmark: unknown name"),
        ("regrade nope --benchmark chain-9", 2, "--benchmark: unknown name"),
        ("evaluate nope --benchmark chain-2 --limit 0", 2, "--limit: expected a number"),
        ("evaluate nope --benchmark chain-9", 2, "nope: neither a directory nor a Hub model"),
        (f"score --study {STUDY} {CELL} --completions nope --out o", 1, "nope: no responses"),
        (
            f"score --study {STUDY} {CELL.replace('chain-2', 'chain-9')} --completions c --out o",
            2,
            "--benchmark: unknown name 'chain-9'; known: chain-2",
        ),
        (f"plan {STUDY} --gpu h1000", 2, "--gpu: unknown device 'h1000'; known: h200"),
        (f"plan {STUDY} --gpus 0", 2, "--gpus: expected at least 1, found 0"),
        ("verify nope", 2, "nope: no results folder"),
        ("table --decoding x --study {", 2, "study.json: not JSON"),
        (
            'table --decoding x --study {"name":1,"name":2}',
            2,
            "study.json: the key 'name' is given twice",
        ),
        ("table --decoding x --study " + '{"a":' * 500, 2, "study.json: not JSON"),
        (
            "table --decoding x --study " + '{"a":' * 50 + "1" + "}" * 50,
            2,
            "study.json: nested more than",
        ),
        ("prompts --out o --study [1]", 2, "study.json: expected a JSON object"),
        ("prompts --out o --study " + "[" * 10**5, 2, "study.json: nested more than"),
        ('prompts --out o --study {"a":NaN}', 2, "study.json: NaN is no number"),
        (
            'prompts --out o --study {"extends":"smoke","name":"x","data":{"hub":"a/b","revison":"main"}}',
            2,
            "data.revison: unknown key; did you",
        ),
        (
            'prompts --out o --study {"extends":"smoke","name":"x","models":{"x":{"hub":"/abs"}}}',
            2,
            "models.x.hub: expected a repository",
        ),
        (
            "prompts --out o --study work/x/studies/1.json",
            2,
            "Snakemake writes it when a run starts",
        ),
        (f"base --out o --study {STUDY}", 2, "--size, --verifier: expected one of them"),
        (f"base --out o --study {STUDY} --size 8B", 2, "--size: unknown name '8B'; known: tiny"),
        (f"base --out o --study {STUDY} --verifier", 2, "--study: has no evaluation.verifier"),
        (
            f"score --study {STUDY} {CELL} --out o --completions c --verifier v",
            2,
            "--study: has no evaluation.verifier; add it",
        ),
        (
            f"score --study {JUDGED} {CELL} --out o --completions c",
            2,
            "--verifier: missing; the study has evaluation.verifier",
        ),
        (
            'base --out o --verifier --study {"extends":"smoke","name":"x","evaluation":{"verifier":'
            '{"hub":"a/b","revision":"main","template":{"github":"a/b"}}}}',
            2,
            "evaluation.verifier.template.revision: missing; add it",
        ),
    ],
)
def test_one_line_and_the_right_code(tmp_path, monkeypatch, capsys, arguments, code, line):
    monkeypatch.chdir(tmp_path)
    words = arguments.split()
    at = words.index("--study") + 1 if "--study" in words else 0
    if at and words[at].startswith(("{", "[")):
        Path("study.json").write_text(words[at])
        words[at] = "study.json"
    monkeypatch.setattr(sys, "argv", ["stapo", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == code, said
    assert any(one.startswith("stapo: ") and line in one for one in said.splitlines()), said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["check", "plan", "status"])
def test_results_of_another_study_of_the_same_name_are_noticed(
    tmp_path, monkeypatch, capsys, raw_study, command
):
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(yaml.safe_dump(raw_study))
    write_origin(parse_study(raw_study), [Path("one.yaml")])
    raw_study["training"]["steps"] = 4
    Path("other.yaml").write_text(yaml.safe_dump(raw_study))
    for name, warned in (("one.yaml", False), ("other.yaml", True)):
        monkeypatch.setattr(sys, "argv", ["stapo", command, name])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr().err
        assert ("warning: name: smoke is also the name of one.yaml" in said) == warned


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (DamagedFileError("a: cut; x\nb: cut; x"), ["a: cut; x", "b: cut; x"]),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), ["no space left"]),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "f"), ["no space left"]),
        (OSError(errno.EFBIG, os.strerror(errno.EFBIG)), ["no space left"]),
        (
            RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos"),
            ["no space left"],
        ),
        # What the tokenizers raise, and a library that hides its cause.
        (Exception("No space left on device (os error 28)"), ["no space left"]),
        (
            caused(KeyError("x"), OSError(errno.ENOSPC, "No space left on device")),
            ["no space left"],
        ),
        (
            OSError(errno.ENOSPC, "a checkpoint needs 2 GB", "work"),
            ["work: a checkpoint needs 2 GB"],
        ),
        (PermissionError(errno.EACCES, "Permission denied", "f"), ["f: Permission denied"]),
    ],
)
def test_errors_of_the_machine_are_a_line_each(monkeypatch, capsys, error, lines):
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert len(said) == len(lines)
    for found, line in zip(said, lines, strict=True):
        assert found.startswith(f"stapo: {line}")


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch):
    def fail() -> None:
        raise KeyError("x")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(KeyError):
        main()


def test_a_full_disk_below_the_log_does_not_hide_the_exit_code(monkeypatch):
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cli, "app", fail)
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(SystemExit) as ended:
            main()
        monkeypatch.undo()
        assert ended.value.code == 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
