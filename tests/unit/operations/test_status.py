"""The state of each cell is read from files, whatever is in them, and from locks that others hold."""

import io
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from synthetic import write_score

from stapo import paths
from stapo.canonical import canonical, fingerprint
from stapo.files import append_jsonl, write_json
from stapo.locks import work_directory
from stapo.operations.status import (
    answers,
    outputs,
    print_status,
    seconds_per_step,
    trainings,
)
from stapo.records.step import from_line
from stapo.study import TrainingRun, identity, parse_study
from stapo.training.record import run_provenance

HOLDER = """
import json, sys
from pathlib import Path
from stapo.locks import work_directory
with work_directory(Path(sys.argv[1]), json.loads(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
HOSTILE = "\x1b]0;title\x07\x1b[31m[bold]red\x1b[0m\u202e"
LOG = "logs/smoke/runs/tiny/grpo/seed0/model.log"
SLURM_LOG = ".snakemake/slurm_logs/rule_train/tiny_grpo_0/7.log"
FAILED_RANK = """
[1]:
  time      : 2026-11-22_15:44:26
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 8288)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"""
LAUNCHER = f"""
Traceback (most recent call last):
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
stapo FAILED
------------------------------------------------------------
Failures:{7 * FAILED_RANK}
------------------------------------------------------------
Root Cause (first observed failure):{FAILED_RANK}
============================================================
"""
"""What torch's launcher says of eight processes."""
PUBLISHED = {"study": "smoke", "size": "tiny", "method": "grpo", "seed": 0}


@pytest.fixture
def study(raw_study):
    raw_study["run"] |= {
        "methods": ["grpo"], "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2", "chain-3"],
    }  # fmt: skip
    return parse_study(raw_study)


@contextmanager
def held(path: Path, config: Any):
    """A process that works in a directory as the pipeline does."""
    command = [sys.executable, "-c", HOLDER, str(path), canonical(config)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def record(step: int, **others: Any) -> dict[str, Any]:
    """As a training writes them; four steps share a rollout."""
    seconds = {"update": 1.0} | ({"rollout": 8.0, "generate": 7.0} if step % 4 == 1 else {})
    return {"step": step, "reward": 0.25, "entropy": 0.5, "seconds": seconds, **others}


def work_of(study, root: Path, steps: int = 10) -> Path:
    """The work directory of the only training, with records."""
    config = identity.train_config(study, TrainingRun("tiny", "grpo", 0))
    path = root / paths.TRAIN_WORK.format(**PUBLISHED) / fingerprint(config)
    path.mkdir(parents=True, exist_ok=True)
    for step in range(1, steps + 1):
        append_jsonl(path / "metrics.jsonl", record(step))
    return path


def write(path: Path, text: str | bytes, age: float = 0.0) -> Path:
    """Write a file as if it were so many seconds old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def shown(study, root: Path) -> tuple[bool, str]:
    stream = io.StringIO()
    fine = print_status(study, Console(file=stream, width=100), root)
    return fine, stream.getvalue()


def test_a_base_model_in_progress_is_told_of_with_its_log(study, tmp_path):
    write(tmp_path / "results/smoke/data/prompts.jsonl", "")
    log = write(
        tmp_path / "logs/smoke/models/tiny/base.log",
        "SFT warm start: 0 of 400 steps, ?\rSFT warm start: 21 of 400 steps, 6:22 left\n\n",
    )
    (training,) = trainings(study, tmp_path)
    said = f"SFT warm start: 21 of 400 steps, 6:22 left; log: {log}"
    assert (training.state, training.note) == ("waiting", f"no base model yet ({said})")


def test_before_anything_ran(study, tmp_path):
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.note) == ("waiting", "no prompts yet, no base model yet")
    assert [(a.state, a.responses, a.wanted) for a in answers(study, tmp_path)] == [
        ("waiting", 0, 800)
    ] * 2
    wanted = len(paths.published_paths(study))
    assert outputs(study, tmp_path) == {
        **dict.fromkeys(("table t1.0-p1.0", "report", "provenance"), "missing"),
        "files": f"{wanted} of {wanted} missing",
    }
    assert shown(study, tmp_path)[0]
    assert not any(tmp_path.iterdir())


def test_a_training_that_runs_here(study, tmp_path):
    work = work_of(study, tmp_path)
    # A torn end, and lines that no training writes.
    with (work / "metrics.jsonl").open("ab") as stream:
        stream.write(b'\xff\x00\n[1]\n{"step": "x"}\n{"step": 11, "rew')
    with held(work, identity.train_config(study, TrainingRun("tiny", "grpo", 0))):
        (training,) = trainings(study, tmp_path)
        # Looking took nothing from whoever holds it.
        assert trainings(study, tmp_path) == [training]
        # Whatever its file says.
        (work / "lock").write_text("torn")
        assert trainings(study, tmp_path) == [training]
    assert (training.state, training.step, training.reward) == ("training", 10, 0.25)
    # An update of 1 s and a quarter of a rollout of 8 s, for 86 steps more.
    assert training.seconds_left == pytest.approx(86 * 3.0)
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.step, training.seconds_left) == ("stopped", 10, None)


def test_steps_without_a_kept_token_are_counted_while_a_training_runs(study, tmp_path):
    work = work_of(study, tmp_path, steps=0)
    for step, (kept, without) in enumerate([(0.0, 0.5), (0.9, 0.5), (0.0, 1.0), (0.0, 0.0)], 1):
        others = {"kept_fraction": kept, "zero_advantage_fraction": without}
        append_jsonl(work / "metrics.jsonl", record(step, **others))
    write(work / "lock", "node7 1", age=60)
    (training,) = trainings(study, tmp_path)
    note = "on node7; its token selection kept no token in 2 of 4 steps"
    assert (training.state, training.note) == ("training", note)
    assert f"training: tiny/grpo/seed0: {note}" in shown(study, tmp_path)[1]


def test_the_speed_is_that_of_the_recent_steps():
    records = [record(step) for step in range(1, 41)]
    for old in records[:20]:
        old["seconds"]["update"] = 100.0
    records[-1]["seconds"]["update"] = 1000.0
    assert seconds_per_step([*map(from_line, records)], 4) == 3.0
    assert seconds_per_step([from_line(record(2))], 4) == 1.0
    strange = [{"seconds": s} for s in (None, 3, {"update": None}, {"update": float("nan")})]
    assert seconds_per_step([*map(from_line, strange)], 4) is None


@pytest.mark.parametrize(
    ("where", "text", "state", "note"),
    [
        (LOG, "step 1\r\x1b[1mTraceback:\n\nstapo: no \x1b[31mspace\x1b[0m\nExit\n",
         "failed", "stapo: no space"),
        (LOG, "  x\n\x1b[31mtorch.OutOfMemoryError: CUDA\n 3%|  |\r",
         "failed", "torch.OutOfMemoryError: CUDA"),
        (LOG, "ValueError: a\nstapo: the reason\nException ignored\nError: b\n",
         "failed", "stapo: the reason"),
        (LOG, "ValueError: a\nKeyError: b\n", "failed", "KeyError: b"),
        (LOG, f"stapo: the reason\nstapo: lost a rank\n{LAUNCHER}", "failed", "stapo: the reason"),
        (LOG, f"[rank3]: KeyError: b\n{LAUNCHER}", "failed", "[rank3]: KeyError: b"),
        (LOG, LAUNCHER, "failed", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
        (LOG, "stapo: stopped; the same command continues\n", "stopped", "by Ctrl-C"),
        (LOG, "  File x\nKeyboardInterrupt\n", "stopped", "by Ctrl-C"),
        (LOG, "a warning of an Error in passing\n", "stopped", "exited without an error"),
        (LOG, "stapo: long ago\n" + "a step\n" * 50, "stopped", "exited without an error"),
        (SLURM_LOG, "slurmstepd: error: oom_kill event\n", "failed", "slurmstepd: error: oom_kill event"),
        (SLURM_LOG, "slurmstepd: error: *** JOB 7 ON n CANCELLED AT x DUE TO TIME LIMIT ***\n",
         "stopped", "slurmstepd: error"),
    ],
)  # fmt: skip
def test_why_a_training_ended(study, tmp_path, where, text, state, note):
    work = work_of(study, tmp_path)
    write(work / "lock", f"{os.uname().nodename} 1", age=60)
    write(tmp_path / where, text)
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.step) == (state, 10)
    assert training.note.startswith(note)
    fine, output = shown(study, tmp_path)
    assert fine == (state != "failed")
    assert note in " ".join(output.split())
    assert ("what was stopped continues with the same snakemake" in output) == (state == "stopped")


def test_an_error_of_an_earlier_attempt_is_over(study, tmp_path):
    work = work_of(study, tmp_path)
    write(tmp_path / LOG, "stapo: no space\n", age=60)
    write(work / "lock", f"{os.uname().nodename} 1", age=30)
    assert trainings(study, tmp_path)[0].state == "stopped"
    with held(work, identity.train_config(study, TrainingRun("tiny", "grpo", 0))):
        write(tmp_path / LOG, "FutureWarning: x\nRuntimeError: caught and survived\n")
        assert trainings(study, tmp_path)[0].state == "training"


def test_a_job_on_another_host_is_judged_by_its_news(study, tmp_path):
    work = work_of(study, tmp_path)
    write(work / "lock", "node7 1", age=9000)
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.note) == ("training", "on node7")
    assert training.seconds_left == pytest.approx(258.0)
    os.utime(work / "metrics.jsonl", (time.time() - 7500,) * 2)
    (training,) = trainings(study, tmp_path)
    assert training.state == "silent"
    assert training.note.startswith("no news for 2 h 5 min from node7")
    write(work / "lock", f"{HOSTILE.split('[')[0]}node\x1b[2J 1", age=9000)
    assert "\x1b" not in shown(study, tmp_path)[1]


def test_what_failed_before_the_work_directory_was_there(study, tmp_path):
    base = write(tmp_path / "logs/smoke/models/tiny/base.log", "stapo: Hub: no\n")
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.note) == ("failed", "base model: stapo: Hub: no")
    base.unlink()
    write(tmp_path / LOG, "stapo: a prompt is a problem of chain-2\n")
    assert trainings(study, tmp_path)[0].state == "failed"


@pytest.mark.parametrize(
    "line", ["stapo: stopped; run the same command again", "KeyboardInterrupt"]
)
def test_what_is_stopped_while_it_starts_did_not_fail(study, tmp_path, line):
    base = write(tmp_path / "logs/smoke/models/tiny/base.log", f"{line}\n")
    (training,) = trainings(study, tmp_path)
    said = "by Ctrl-C or another signal"
    assert (training.state, training.note) == ("stopped", f"base model: {said}")
    base.unlink()
    write(tmp_path / LOG, f"{line}\n")
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.note) == ("stopped", said)
    weights = tmp_path / paths.BASE_MODEL.format(**PUBLISHED)
    weights.mkdir(parents=True)
    os.utime(weights, (time.time() - 500,) * 2)
    record_of_base = tmp_path / paths.BASE_RECORD.format(**PUBLISHED)
    write_json(record_of_base, identity.model_settings(study.models["tiny"]))
    write(tmp_path / "logs/smoke/completions/tiny/base/t1.0-p1.0.log", f"{line}\n")
    base = answers(study, tmp_path)[0]
    assert (base.state, base.note) == ("stopped", said)
    assert shown(study, tmp_path)[0]
    # What is made again for another reason is outdated, and `stapo plan` says why.
    write(tmp_path / paths.RUN_PROVENANCE.format(**PUBLISHED), "{}")
    write(tmp_path / paths.METRICS.format(**PUBLISHED), "")
    assert trainings(study, tmp_path)[0].state == "outdated"


def test_what_is_published_is_done_or_outdated(study, tmp_path):
    work = work_of(study, tmp_path, steps=96)
    write(work / "lock", f"{os.uname().nodename} 1")
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.note) == (
        "stopped",
        "all steps are done; the next run publishes them",
    )
    metrics = (work / "metrics.jsonl").read_bytes()
    write(tmp_path / paths.METRICS.format(**PUBLISHED), metrics)
    provenance = tmp_path / paths.RUN_PROVENANCE.format(**PUBLISHED)
    write_json(provenance, {"fingerprint": work.name})
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.step, training.reward) == ("done", 96, 0.25)
    for strange in ('{"fingerprint": "0"}', "[]", '{"fingerprint', "\xff"):
        write(provenance, strange)
        (training,) = trainings(study, tmp_path)
        assert training.note == "all steps are done; the next run publishes them"
    shutil.rmtree(work)
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.step) == ("outdated", 0)


def test_a_training_without_the_weights_that_are_asked_for_is_not_done(raw_study, study, tmp_path):
    write(tmp_path / paths.METRICS.format(**PUBLISHED), "{}\n")
    made_by = identity.train_fingerprint(study, TrainingRun("tiny", "grpo", 0))
    outputs = {"model/model.safetensors": "0", "step48/model.safetensors": "0"}
    record = {"fingerprint": made_by, "outputs": outputs}
    write_json(tmp_path / paths.RUN_PROVENANCE.format(**PUBLISHED), record)
    for every, state in ((None, "done"), (48, "done"), (32, "outdated")):
        raw_study["training"]["evaluate_every"] = every
        (training,) = trainings(parse_study(raw_study), tmp_path)
        assert training.state == state


def test_the_error_of_other_settings_is_not_that_of_a_training(study, tmp_path):
    work = work_of(study, tmp_path)
    write(work / "lock", f"{os.uname().nodename} 1", age=100)
    write(tmp_path / LOG, f"configuration {work.name}\nstapo: no space\n")
    assert trainings(study, tmp_path)[0].state == "failed"
    write(tmp_path / LOG, "configuration 0123456789abcdef\nstapo: no space\n")
    assert trainings(study, tmp_path)[0].state == "stopped"


def test_responses_and_scores_are_counted(study, tmp_path):
    at = {"study": "smoke", "checkpoint": "tiny/base", "decoding": "t1.0-p1.0"}
    weights = tmp_path / paths.BASE_MODEL.format(**PUBLISHED)
    weights.mkdir(parents=True)
    record_of_base = tmp_path / paths.BASE_RECORD.format(**PUBLISHED)
    write_json(record_of_base, identity.model_settings(study.models["tiny"]))
    os.utime(weights, (time.time() - 500,) * 2)
    work = tmp_path / paths.GENERATE_WORK.format(**at)
    write(work / f"chain-2-{fingerprint('now')}.jsonl", "{}\n" * 150 + '{"torn', age=100)
    write(work / f"chain-2-{fingerprint('before')}.jsonl", "{}\n" * 300, age=200)
    write(work / f"chain-3-{fingerprint('now')}.jsonl", "{}\n" * 90, age=600)  # Older weights.
    base = answers(study, tmp_path)[0]
    assert (base.state, base.responses, base.wanted) == ("incomplete", 150, 800)
    with held(work, {"kind": "responses"}):
        assert answers(study, tmp_path)[0].state == "answering"
        assert "answering 150/800" in shown(study, tmp_path)[1]
    assert answers(study, tmp_path)[0].state == "stopped"
    write(tmp_path / "logs/smoke/completions/tiny/base/t1.0-p1.0.log", "stapo: CUDA\n")
    base = answers(study, tmp_path)[0]
    assert (base.state, base.note) == ("failed", "stapo: CUDA")
    assert not shown(study, tmp_path)[0]
    for name in study.evaluated():
        write(tmp_path / paths.COMPLETIONS.format(**at, benchmark=name), "{}\n", age=-1)
    base = answers(study, tmp_path)[0]
    assert (base.state, base.responses) == ("answered", 800)
    write_score(tmp_path, study, "tiny/base", "chain-2")
    assert "answered 800/800, 1/2 scored" in shown(study, tmp_path)[1]
    scores = "tiny/base/t1.0-p1.0/chain-3.parquet"
    write(tmp_path / f"logs/smoke/scores/{scores}.log", "RuntimeError: grading failed\n", age=-2)
    assert answers(study, tmp_path)[0].note == "RuntimeError: grading failed"
    write_score(tmp_path, study, "tiny/base", "chain-3")
    assert (answers(study, tmp_path)[0].state, answers(study, tmp_path)[0].scored) == ("scored", 2)


def test_scores_of_other_settings_are_outdated(study, tmp_path):
    at = {"study": "smoke", "checkpoint": "tiny/base", "decoding": "t1.0-p1.0"}
    work = tmp_path / paths.GENERATE_WORK.format(**at)
    built_as = identity.model_settings(study.models["tiny"])
    write_json(tmp_path / paths.BASE_RECORD.format(**PUBLISHED), built_as)
    for name in study.evaluated():
        write(work / f"{name}-{fingerprint('before')}.jsonl", "{}\n" * 400, age=100)
        write(tmp_path / paths.COMPLETIONS.format(**at, benchmark=name), "{}\n", age=90)
        write_score(tmp_path, study, "tiny/base", name, fingerprint="of other settings")
    write(work / "lock", "node7 1", age=100)
    base = answers(study, tmp_path)[0]
    assert (base.state, base.responses, base.scored) == ("outdated", 0, 0)
    write(work / f"chain-2-{fingerprint('now')}.jsonl", "{}\n" * 7, age=-1)
    assert (answers(study, tmp_path)[0].state, answers(study, tmp_path)[0].responses) == (
        "incomplete",
        7,
    )


def test_weights_on_the_way_share_a_row(raw_study, study, tmp_path):
    raw_study["training"]["evaluate_every"] = 32
    study = parse_study(raw_study)
    write_score(tmp_path, study, "tiny/grpo/seed0/step32", "chain-2")
    write_score(tmp_path, study, "tiny/grpo/seed0/step32", "chain-3")
    (line,) = [line for line in shown(study, tmp_path)[1].splitlines() if "step*" in line]
    assert line.split(maxsplit=1) == ["tiny/grpo/seed0/step*", line.split(maxsplit=1)[1]]
    assert "1 scored, 1 waiting" in line


def test_weights_of_the_curve_have_a_row_and_one_decoding(raw_study, study, tmp_path):
    raw_study["training"]["evaluate_every"] = 32
    raw_study["run"]["decodings"] = ["t1.0-p1.0", "t0.7-p0.9"]
    curve = {"every": 16, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}
    raw_study["evaluation"]["curve"] = curve
    study = parse_study(raw_study)
    for step in (16, 48):
        checkpoint = f"tiny/grpo/seed0/step{step}"
        write_score(tmp_path, study, checkpoint, "chain-3", curve["decoding"])
    of_curve = [a for a in answers(study, tmp_path) if not study.is_full(a.checkpoint)]
    assert {a.decoding for a in of_curve} == {"t0.7-p0.9"}
    assert [(a.state, a.benchmarks, a.wanted) for a in of_curve] == [
        ("scored", 1, 400), ("scored", 1, 400), ("waiting", 1, 400),
    ]  # fmt: skip
    lines = shown(study, tmp_path)[1].splitlines()
    (alone, full) = [line.split("  ") for line in lines if "step*" in line]
    assert [word.strip() for word in full if word.strip()] == [
        "tiny/grpo/seed0/step*", "2 waiting", "2 waiting",
    ]  # fmt: skip
    assert [word.strip() for word in alone if word.strip()] == [
        "tiny/grpo/seed0/step* (curve)", "2 scored, 1 waiting",
    ]  # fmt: skip
    write(tmp_path / paths.METRICS.format(**PUBLISHED), "{}\n")
    made_by = identity.train_fingerprint(study, TrainingRun("tiny", "grpo", 0))
    outputs = {f"step{step}/model.safetensors": "0" for step in study.kept_steps()}
    record = {"fingerprint": made_by, "outputs": outputs}
    write_json(tmp_path / paths.RUN_PROVENANCE.format(**PUBLISHED), record)
    where = "logs/smoke/completions/tiny/grpo/seed0/step80/t0.7-p0.9.log"
    slurm = ".snakemake/slurm_logs/rule_generate_curve/tiny_grpo_seed0_step80_t0.7-p0.9/7.log"
    for log in (where, slurm):
        write(tmp_path / log, "stapo: CUDA\n")
        assert "stapo: CUDA" in shown(study, tmp_path)[1]
        (tmp_path / log).unlink()


def test_a_report_with_another_curve_is_outdated(raw_study, tmp_path):
    curve = {"every": 16, "benchmarks": ["chain-3"], "decoding": "t1.0-p1.0"}
    raw_study["evaluation"]["curve"] = curve
    study = parse_study(raw_study)
    shown_by = f"Configuration {identity.report_fingerprint(study)}."
    write(tmp_path / paths.REPORT.format(study="smoke"), shown_by)
    assert outputs(study, tmp_path)["report"] == "there"
    for other in ({**curve, "every": 32}, {**curve, "benchmarks": ["chain-2"]}, None):
        raw_study["evaluation"]["curve"] = other
        found = outputs(parse_study(raw_study), tmp_path)
        assert found["report"] == "outdated, made with other settings"


def test_tables_and_report_may_be_outdated_or_older_than_their_input(raw_study, study, tmp_path):
    table = {"study": "smoke", "decoding": "t1.0-p1.0", "suffix": "md"}
    made_by = f"Configuration {identity.table_fingerprint(study, 't1.0-p1.0')}."
    path = write(tmp_path / paths.MAIN_TABLE.format(**table), made_by, age=100)
    shown_by = f"Configuration {identity.report_fingerprint(study)}."
    write(tmp_path / paths.REPORT.format(study="smoke"), f"<p>{shown_by}</p>", age=50)
    found = outputs(study, tmp_path)
    wanted = len(paths.published_paths(study))
    assert found == {
        "table t1.0-p1.0": "there",
        "report": "there",
        "provenance": "missing",
        "files": f"{wanted - 2} of {wanted} missing",
    }
    write_score(tmp_path, study, "tiny/base", "chain-2")
    assert outputs(study, tmp_path)["table t1.0-p1.0"] == "older than its input"
    os.utime(path)
    assert outputs(study, tmp_path)["report"] == "older than its input"
    raw_study["methods"] = {"grpo": {"clip_high": 0.3}}
    found = outputs(parse_study(raw_study), tmp_path)
    assert found["table t1.0-p1.0"] == found["report"] == "outdated, made with other settings"


def test_strange_files_are_no_error_of_ours(study, tmp_path):
    work = work_of(study, tmp_path, steps=0)
    os.mkfifo(work / "metrics.jsonl")  # Opened, it would be waited for.
    write(work / "lock", os.urandom(500), age=60)
    deep = b'{"step": 1, "reward": ' + b"[" * 100_000 + b"\n"
    write(
        tmp_path / LOG, os.urandom(100_000) + b"\nstapo: " + HOSTILE.encode() + b"y" * 999 + b"\n"
    )
    scores = paths.SCORES.format(
        study="smoke", checkpoint="tiny/base", decoding="t1.0-p1.0", benchmark="chain-2"
    )
    write(tmp_path / scores, b"PAR1" + os.urandom(100) + b"PAR1")
    (training,) = trainings(study, tmp_path)
    assert (training.state, training.step, training.reward) == ("failed", 0, None)
    assert answers(study, tmp_path)[0].state == "outdated"
    fine, output = shown(study, tmp_path)
    assert not fine
    assert "[bold]red" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert max(map(len, output.splitlines())) <= 100
    (work / "metrics.jsonl").unlink()
    (work / "metrics.jsonl").mkdir()
    assert trainings(study, tmp_path)[0].step == 0
    (work / "metrics.jsonl").rmdir()
    write(work / "metrics.jsonl", deep + b'{"step": 3, "reward": 1e999, "entropy": "x"}\n')
    (training,) = trainings(study, tmp_path)
    assert (training.step, training.reward, training.entropy) == (3, None, None)


def test_it_reads_what_the_pipeline_itself_writes(study, tmp_path):
    """The paths and formats are those of `stapo.paths`, not of this test."""
    config = identity.train_config(study, TrainingRun("tiny", "grpo", 0))
    path = tmp_path / paths.TRAIN_WORK.format(**PUBLISHED) / fingerprint(config)
    with work_directory(path, config):
        append_jsonl(path / "metrics.jsonl", record(1))
        assert trainings(study, tmp_path)[0].state == "training"
    record_of_run = run_provenance(config, tmp_path, path / "lock", path, [path / "lock"])
    write_json(tmp_path / paths.RUN_PROVENANCE.format(**PUBLISHED), record_of_run)
    write(tmp_path / paths.METRICS.format(**PUBLISHED), (path / "metrics.jsonl").read_bytes())
    assert trainings(study, tmp_path)[0].state == "done"
