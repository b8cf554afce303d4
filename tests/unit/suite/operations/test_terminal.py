"""What `snakemake` shows, from the records that it logs."""

import logging
import sys
from pathlib import Path

import pytest

from stapo.core.files import write_jsonl
from stapo.suite import paths
from stapo.suite.jobs import jobs_of
from stapo.suite.operations.terminal import Terminal
from stapo.suite.study import parse_study

LOG = "logs/train.log"


@pytest.fixture
def said(raw_study, capsys, monkeypatch):
    """Hand records to the handler, of a dry run or not; return the lines that it prints."""
    monkeypatch.setattr(sys, "argv", ["/bin/snakemake", "-n", "--configfile", "a b.yaml"])

    def of(dry, *records):
        shown = Terminal(logging.StreamHandler(), parse_study(raw_study), ("cpu", 1), dry)
        for event, fields in records:
            record = {"event": event, "levelno": logging.INFO, "msg": "", **fields}
            shown.handle(logging.makeLogRecord(record))
        return capsys.readouterr().err.splitlines()

    return of


START = ("workflow_started", {})
STATS = ("run_info", {"stats": {"train": 1, "score": 2, "all": 1, "total": 4}})
SHELL = "python -P -m stapo run train tiny/stapo/seed0 --study x"
WHY = "Missing output files: a, b"
JOB = ("job_info", {"jobid": 1, "rule_name": "train", "reason": WHY, "shellcmd": SHELL})


def test_a_failure_has_cause_and_log_and_is_told_once(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = (
        "Restored previous version of results/x (updating job failed).",
        "a\nCalledProcessError",
        "b",
    )
    errors = [("error", {"msg": text, "levelno": logging.ERROR}) for text in texts]
    failed, advice = ("job_error", {"jobid": 1, "log": [LOG]}), (None, {"msg": "advice"})
    lines = said(False, (None, {"msg": "rules"}), START, STATS, JOB, failed, *errors, advice)
    assert (lines[0], lines[4:]) == ("rules", ["b"])
    assert lines[1].startswith("study: 3 jobs: 1 train, 2 score; about ")
    assert lines[2].endswith("[0/3] started train tiny/stapo/seed0")
    assert lines[3].endswith(f"the same command goes on; log: {LOG}")


def test_a_dry_run_is_a_table_and_how_to_start(said):
    lines = said(True, START, STATS, JOB, STATS)
    assert lines[1].split()[:3] == ["study:", "train", "1"]
    assert lines[1].endswith("  missing output files")
    assert lines[-1] == "study: start: /bin/snakemake --configfile 'a b.yaml'"


def test_a_dry_run_prices_the_models_that_it_asks_for(said, raw_study):
    raw_study["models"]["wide"] = {**raw_study["models"]["tiny"], "hidden_size": 4096}
    alone = said(True, START, STATS, JOB, STATS)[1]
    raw_study["run"]["models"] = ["tiny", "wide"]
    assert said(True, START, STATS, JOB, STATS)[1] == alone


def test_a_long_job_tells_how_far_it_is(raw_study, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = parse_study(raw_study)
    shown = Terminal(logging.StreamHandler(), study, ("cpu", 1), dry=False)
    for event, fields in (START, STATS, JOB):
        shown.handle(logging.makeLogRecord({"event": event, "levelno": logging.INFO, **fields}))
    job = jobs_of(study).job("train", "tiny/stapo/seed0")
    work = Path(paths.TRAIN_WORK.format(fingerprint=job.fingerprint))
    step = {"step": 1, "reward": 0.5, "entropy": 0.1, "seconds": {}}
    write_jsonl(work / paths.METRICS_FILE, [step, {**step, "step": 2}])
    capsys.readouterr()
    shown.tell_running()
    steps = study.training.steps
    assert f"[0/3] running train tiny/stapo/seed0: 2 of {steps}, after " in capsys.readouterr().err
    shown.handle(logging.makeLogRecord({"event": "job_finished", "levelno": 20, "job_id": 1}))
    assert shown.ended.is_set()
