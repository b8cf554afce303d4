"""The state of each job is read from files, whatever is in them, and from locks that others hold."""

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from synthetic import write_score

from stapo.core.files import append_jsonl, canonical, write_json
from stapo.suite import locks, paths
from stapo.suite.jobs import jobs_of
from stapo.suite.locks import work_directory
from stapo.suite.operations.status import (
    BY_SIGNAL,
    IN_WORK,
    KILLED,
    Progress,
    lines_of,
    print_status,
    progress,
    status_document,
)
from stapo.suite.study import parse_study

HOLDER = """
import json, sys
from pathlib import Path
from stapo.suite.locks import work_directory
with work_directory(Path(sys.argv[1]), json.loads(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
HOSTILE = "\x1b]0;title\x07\x1b[31m[bold]red\x1b[0m\u202e"
LOG = "logs/smoke/runs/tiny/grpo/seed0/model.log"
LAUNCHER = (
    "stapo: training: no reward\n[rank1]: RuntimeError: rank 1 lost rank 0\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
)


@pytest.fixture
def study(raw_study, tmp_path, monkeypatch):
    """A study with one training, whose results are in the working directory."""
    monkeypatch.chdir(tmp_path)
    raw_study["run"] |= {
        "methods": ["grpo"], "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2", "chain-3"],
    }  # fmt: skip
    return parse_study(raw_study)


def work_of(study, steps: int = 10) -> Path:
    """The work directory of the only training, with records."""
    (job,) = jobs_of(study).all("train")
    path = Path(paths.TRAIN_WORK.format(fingerprint=job.fingerprint))
    path.mkdir(parents=True, exist_ok=True)
    for step in range(1, steps + 1):
        touched = {"touched_fraction": 1e-5 * (step > 4)}
        append_jsonl(path / "metrics.jsonl", {"step": step, "reward": 0.25, **touched})
    return path


def write(path: Path, text: str | bytes, age: float = 0.0) -> Path:
    """Write a file as if it were so many seconds old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def of_stage(study, stage: str = "train") -> Progress:
    """The first job of a stage."""
    return next(one for one in progress(study) if one.stage == stage)


def test_a_training_that_runs_here_and_for_which_another_study_waits(study, monkeypatch):
    work = work_of(study)
    config = canonical(jobs_of(study).all("train")[0].config)
    command, pipes = [sys.executable, "-c", HOLDER, str(work), config], {"stdin": -1, "stdout": -1}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        training = of_stage(study)
        said: list[str] = []
        monkeypatch.setattr(locks, "_say", lambda line: (said.append(line), process.kill()))
        with work_directory(work, json.loads(config)):  # A killed process holds nothing.
            assert process.wait() == -9
    assert of_stage(study).state == "stopped"
    assert "waiting for another process" in said[0]
    assert (training.state, training.done, training.reward) == ("running", 10, 0.25)
    assert training.acted == 6


@pytest.mark.parametrize(
    ("last", "what"), [(0.049, "collapsed"), (0.051, None), (1.49, None), (1.51, "exploded")]
)
def test_an_entropy_beyond_the_limits_of_stability_is_named(study, last, what):
    metrics = work_of(study, steps=0) / "metrics.jsonl"
    for step, entropy in ((1, 0.5), (2, 2.0), (3, last)):
        append_jsonl(metrics, {"step": step, "reward": 0.25, "entropy": entropy})
    write(metrics, metrics.read_bytes() + b'{"step": 4, "entr')  # Being written.
    training, stream = of_stage(study), io.StringIO()
    assert (training.done, training.entropy, training.entropy_start) == (3, last, 0.5)
    print_status(study, Console(file=stream, width=80))
    lines = [line for line in stream.getvalue().splitlines() if "of its first step" in line]
    assert [line.partition(":")[0] for line in lines] == [what] * bool(what)


@pytest.mark.parametrize(
    ("text", "state", "note"),
    [
        ("", "stopped", KILLED),
        ("STAPO:   0%|  | 0/2 [00:00<?, ?step/s]stapo: reason\n", "failed", "stapo: reason"),
        ("ValueError: x\nstapo: reason\n", "failed", "stapo: reason"),
        ("KeyboardInterrupt\n", "stopped", BY_SIGNAL),
        ("stapo: stopped; run the same command\n", "stopped", BY_SIGNAL),
        (LAUNCHER, "failed", "stapo: training: no reward"),
        (f"stapo: {HOSTILE}\n", "failed", None),
    ],
)  # fmt: skip
def test_why_a_training_ended(study, text, state, note):
    """By the log that names the configuration of the training; those of other configurations are not its."""
    work = work_of(study)
    write(work / "lock", f"{os.uname().nodename} 1", age=60)
    write(Path(LOG), f"configuration {work.name}\n{text}")
    training = of_stage(study)
    assert training.state == state
    assert note in (None, training.note)
    assert not {*training.note} & {*"\x1b\x07\u202e"}
    stream = io.StringIO()
    assert print_status(study, Console(file=stream, width=100)) == (state != "failed")
    assert "\x1b" not in stream.getvalue()
    write(Path(LOG), f"configuration {'0' * 16}\n{text}")
    assert of_stage(study).note == KILLED


def test_a_job_on_another_host_runs_with_its_last_news(study):
    work = work_of(study)
    write(work / "lock", "elsewhere 1", age=7200)
    write(work / "metrics.jsonl", "", age=3600)
    training = of_stage(study)
    assert (training.state, training.note) == ("running", "on elsewhere; last news 1.0 h ago")


def test_what_is_published_is_done_or_outdated(study, raw_study):
    (job,) = jobs_of(study).all("train")
    for path in job.outputs:
        write(Path(path), json.dumps({"step": study.training.steps}))
    about = {"fingerprint": job.fingerprint, "outputs": {}}
    write_json(Path(job.outputs[-1]), about)
    assert of_stage(study).state == "done"
    raw_study["training"]["learning_rate"] = 0.5
    changed = parse_study(raw_study)
    found = of_stage(changed)
    assert (found.state, found.done) == ("outdated", 0)
    said = "outdated: train tiny/grpo/seed0: made with other settings"
    assert lines_of("outdated", progress(changed)) == [said]
    write(Path(job.outputs[-1]), json.dumps(about)[:20])
    assert of_stage(study).note == "damaged, incomplete, or without the fingerprint of its settings"
    Path(job.outputs[0]).unlink()
    assert of_stage(study).note == f"{Path(job.outputs[0]).name} is missing"


def test_responses_and_scores_are_counted(study):
    generate = jobs_of(study).job("generate", "tiny/base/t1.0-p1.0")
    asked = {name: study.responses(name) for name in generate.rerun_on}
    work = Path(paths.GENERATE_WORK.format(fingerprint=generate.fingerprint))
    write(work / f"chain-2-{'0' * 16}.jsonl", "{}\n" * 7 + "{", age=5)

    def base() -> tuple[str, int, str]:
        found = of_stage(study, "generate")
        return found.state, found.done, found.note

    assert base() == ("waiting", 7, "")
    write(work / "lock", f"{os.uname().nodename} 1")
    for name, number in asked.items():
        write(work / f"{name}-{'1' * 16}.jsonl", "{}\n" * number)
    assert base() == ("waiting", sum(asked.values()), IN_WORK)
    # Scored responses count wherever they are.
    for name in generate.rerun_on:
        write_score(Path(), study, "tiny/base", name)
    shutil.rmtree(work)
    assert base()[:2] == ("done", sum(asked.values()))
    write_score(Path(), study, "tiny/base", "chain-3", fingerprint="0" * 16)
    assert base()[0] == "waiting"
    states = [one.state for one in progress(study) if one.stage == "score"]
    assert states[:2] == ["done", "outdated"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[" * 100_000, b'{"step": NaN}\n', b"null", b"", b'{"outputs": 3}']
)
def test_strange_files_are_no_error_of_ours(study, content):
    for job in jobs_of(study):
        for path in job.outputs:
            write(Path(path), content)
    write(work_of(study, steps=0) / "metrics.jsonl", content)
    print_status(study, Console(file=io.StringIO()))
    json.dumps(status_document(study))
    found = {one.stage: one.state for one in progress(study)}
    assert "done" not in {found[stage] for stage in ("train", "score", "tables", "report")}
