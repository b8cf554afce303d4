"""How far a study is: the state of every job, from files alone.

Nothing is started, locked or written, so that it works beside a running study, also one on Slurm. Files are
taken as they are found: what is truncated, corrupt or malicious is treated as missing, and raises no error.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.core.checksums import SUMS
from stapo.core.files import DamagedFileError, open_file, text_of
from stapo.suite import paths
from stapo.suite.exhibits import COLLAPSE, EXPLOSION
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs import STAGES, jobs_of
from stapo.suite.locks import holders
from stapo.suite.results import has_tables_alone, is_unchanged, outdated
from stapo.suite.study import Study
from stapo.suite.study.reading import command_for
from stapo.suite.text import COLOURS, plain

LOG_BYTES = 65536
"""Size of the start of a log, which names the job, and of its end, which says how it ended."""
STARTED = re.compile(r"^configuration ([0-9a-f]{16})$", re.MULTILINE)
"""Line that a job writes when it starts, with its fingerprint."""
ERROR = re.compile(
    # A line of ours may stand behind a bar that was open.
    r"(?:^|(?<=\]))stapo: .*|^(?:\[rank\d+\]: )?[\w.]*(?:Error|Exception|Interrupt)\b.*",
    re.MULTILINE,
)
CTRL_C = re.compile("^stapo: stopped|^KeyboardInterrupt")
WORK = {
    "base": paths.BASE_WORK,
    "train": paths.TRAIN_WORK,
    "intervene": paths.INTERVENE_WORK,
    "generate": paths.GENERATE_WORK,
}
"""Work directory of a stage's jobs, which they lock."""
DRAWN = ("overlap", "tables", "evidence", "figures", "report", "provenance")
"""Stages that are made again when a file that they read is newer."""
STYLES = dict.fromkeys(("stopped", "outdated"), "yellow")
STYLES |= {"failed": "red", "running": "cyan", "done": "green"}
TOUCHED = re.compile(r'"touched_fraction": ([-+.\de]+)')
PUBLISHED = "published without raw data, as in git; its tables: stapo show {study}"
BY_SIGNAL = "by Ctrl-C or another signal"
IN_WORK = "in work/ already, of this or another study: not made again"
KILLED = "exited without an error, possibly killed; the same command goes on"


@dataclass(frozen=True)
class Progress:
    """How far one job is."""

    stage: str
    name: str
    state: str
    """waiting, running, stopped, failed, outdated or done."""
    note: str = ""
    done: int = 0
    """Optimiser steps of a training, or responses."""
    of: int = 0
    """All of them; 0 where nothing is counted."""
    reward: float | None = None
    """Of a training's last step, in [-1, 1]."""
    entropy: float | None = None
    """Of a training's last step, nats."""
    entropy_start: float | None = None
    """Of its first step."""
    acted: int | None = None
    """Steps in which a training's method changed the weight of a token; None where that was not recorded."""


def progress(study: Study) -> list[Progress]:
    """Return how far every job is; what other settings left behind is `outdated`."""
    jobs, logs = jobs_of(study), _logs_of(study.name)
    scored = {
        job: STAGES["score"].recorded(job, Path()) == job.fingerprint for job in jobs.all("score")
    }
    # Weights are not looked at: a finished study may have lost them, as in git.
    return [_progress(jobs, job, logs, scored) for job in jobs if job.outputs]


def status_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo status --json`."""
    jobs = [asdict(job) for job in progress(study)]
    failed = any(job["state"] == "failed" for job in jobs)
    return {"study": study.name, "failed": failed, "jobs": jobs}


def print_status(study: Study, console: Console) -> bool:
    """Print one screen; return whether nothing failed."""
    jobs = progress(study)
    trainings = [job for job in jobs if job.stage == "train"]
    if has_tables_alone(study) and all(job.state == "waiting" for job in trainings):
        console.print(Text(PUBLISHED.format(study=study.name)), soft_wrap=True)
        console.print(Text(f"to make it again: {command_for(study)}"), soft_wrap=True)
        return True
    console.print(_stage_table(study, jobs))
    if trainings:
        console.print(_training_table(trainings))
        for line in filter(None, map(unstable, trainings)):
            console.print(Text(line, style="yellow"), soft_wrap=True)
    for state, line in _notes(jobs):
        console.print(Text(line, style=STYLES.get(state, "")))
    if all(job.state == "waiting" for job in jobs):
        start = f"start it with: {command_for(study)}; cost: stapo plan {study.name}"
        console.print(Text(f"not started; {start}"), soft_wrap=True)
    return all(job.state != "failed" for job in jobs)


def unstable(job: Progress) -> str:
    """Return a line about a training whose last entropy, beside its first, is beyond the limits, or nothing.

    docs/stability.md has the limits, there of moving means.
    """
    start = job.entropy_start or 0.0
    if job.entropy is None or start <= 0:
        return ""
    ratio = job.entropy / start
    if COLLAPSE <= ratio <= EXPLOSION:
        return ""
    what = "collapsed" if ratio < COLLAPSE else "exploded"
    return f"{what}: train {job.name}: its entropy is {ratio:.3g} times that of its first step"


def lines_of(state: str, jobs: Sequence[Progress]) -> list[str]:
    """Return a line for each reason why jobs are in a state."""
    return [line for key, line in _notes(jobs) if key == state]


def _notes(jobs: Sequence[Progress]) -> list[tuple[str, str]]:
    """Return state and line for each note; jobs with the same one share a line."""
    names: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        names.setdefault((job.state, job.note), []).append(f"{job.stage} {job.name}".rstrip())
    lines = []
    for (state, note), group in names.items():
        some = group[0] if len(group) == 1 else f"{len(group)} jobs, such as {group[0]}"
        lines += [(state, f"{state}: {some}: {note}")] * bool(note)
    return lines


def _progress(
    jobs: Jobs, job: Job, logs: Mapping[str, Path], scored: Mapping[Job, bool]
) -> Progress:
    status = Progress(job.stage, job.name, *_published(job))
    work = Path(WORK.get(job.stage, "").format(fingerprint=job.fingerprint))
    if job.stage == "generate":
        status = _answered(jobs, status, job, work, scored)
    if job.stage == "train":
        metrics = Path(job.outputs[0]) if status.state == "done" else work / paths.METRICS_FILE
        status = _measured(status, metrics, jobs.study.training.steps)
    if status.state == "done":
        return status
    # The scores of a checkpoint under a decoding share a log.
    named = job.name.rpartition("/")[0] if job.stage == "score" else job.name
    log = logs.get(jobs.made_by(job.stage, named)) if logs else None
    return _unfinished(status, work if job.stage in WORK else None, log)


def _unfinished(status: Progress, work: Path | None, log: Path | None) -> Progress:
    """Return the progress of a job without results by what locked its work directory, and by its log."""
    since = modified(work / "lock") if work else 0.0
    host, holds = _owner(work / "lock") if work and since else ("", False)
    built = work and status.stage == "base" and modified(work / "model" / SUMS)
    error = error_in(log, since)
    if holds:
        return replace(status, state="running")
    if since and (0 < status.of <= status.done or built):
        return replace(status, state="waiting", note=IN_WORK)
    if work and not error and host not in ("", os.uname().nodename):
        # Locks of another host are not seen here.
        news = max([since, *(modified(path) for path in work.glob("*.jsonl"))])
        message = f"on {host}; last news {span(time.time() - news)} ago"
        note = "; ".join(filter(None, (message, status.note)))
        return replace(status, state="running", note=note)
    if error:
        state, note = ("stopped", BY_SIGNAL) if CTRL_C.search(error) else ("failed", error)
    else:
        state, note = ("stopped", KILLED) if since else (status.state, status.note)
    return replace(status, state=state, note=note)


def _owner(lock: Path) -> tuple[str, bool]:
    """Return the host that locked a work directory last, and whether a process of this host still does.

    Nothing is locked, which could block a starting job.
    """
    host, _, pid = plain(text_of(lock)[-200:]).partition(" ")
    return host, pid in holders(lock.stat().st_ino)


def _logs_of(study: str) -> dict[str, Path]:
    """Return fingerprint -> newest log of the job that has it."""
    logs: dict[str, Path] = {}
    for path in sorted(Path("logs", study).rglob("*.log"), key=modified):
        with suppress(OSError, DamagedFileError), open_file(path) as stream:
            head = stream.read(LOG_BYTES).decode(errors="replace")
            logs |= dict.fromkeys(STARTED.findall(head), path)
    return logs


def error_in(log: Path | None, since: float) -> str | None:
    """Return the line with the reason why a job failed; None without one, or in a log older than `since`."""
    if log is None or modified(log) < since:
        return None
    # A progress bar separates its states by carriage returns.
    errors = ERROR.findall(COLOURS.sub("", text_of(log, LOG_BYTES)).replace("\r", "\n"))
    ours = [line for line in errors if line.startswith("stapo: ")]
    # After one rank has failed, others say that they lost it.
    return plain((ours[:1] or errors[-1:])[0]) if errors else None


def modified(path: Path) -> float:
    """Return the modification time of a file in seconds since 1970, 0.0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _published(job: Job) -> tuple[str, str]:
    """Return state and note by the published files of a job."""
    written = {path: modified(Path(path)) for path in job.outputs}
    missing = [path for path, when in written.items() if not when]
    if missing:
        note = f"{Path(missing[0]).name} is missing" if len(missing) < len(written) else ""
        return "waiting", note
    if reason := outdated(job):
        return "outdated", reason
    newest = max((modified(Path(path)) for path in job.inputs), default=0.0)
    is_older = job.stage in DRAWN and min(written.values()) < newest
    if is_older and not is_unchanged(job):
        return "outdated", "older than its input"
    return "done", ""


def _answered(
    jobs: Jobs, status: Progress, job: Job, work: Path, scored: Mapping[Job, bool]
) -> Progress:
    """Return how many responses there are; those that are scored count, wherever they are."""
    asked = {name: jobs.study.responses(name) for name in job.rerun_on}
    done = {name: scored[jobs.job("score", f"{job.name}/{name}")] for name in asked}
    responses = sum(n if done[name] else min(_stored(work, name), n) for name, n in asked.items())
    total = sum(asked.values())
    is_done = all(done.values()) or (status.state == "done" and responses == total)
    return replace(status, done=responses, of=total, state="done" if is_done else "waiting")


def _stored(work: Path, benchmark: str) -> int:
    """Return how many responses to a benchmark are in its newest store."""
    stores = work.glob(f"{benchmark}-{'[0-9a-f]' * 16}.jsonl")
    newest = max(stores, key=modified, default=None)
    return text_of(newest).count("\n") if newest else 0


def _measured(status: Progress, metrics: Path, steps: int) -> Progress:
    """Return a training's progress with what the last of its records says that can be read."""
    text = text_of(metrics)
    touched = TOUCHED.findall(text)
    acted = sum(share.strip("0.") != "" for share in touched) if touched else None
    start, _, _ = text.partition("\n")
    for line in reversed(text.split("\n")):
        if (record := _record(line)) is not None:
            first = _record(start) or {}
            return replace(
                status, done=record["step"], of=steps, acted=acted, reward=_finite(record, "reward"),
                entropy=_finite(record, "entropy"), entropy_start=_finite(first, "entropy"),
            )  # fmt: skip
    return replace(status, of=steps)


def _finite(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    return value if isinstance(value, float) and isfinite(value) else None


def _record(line: str) -> dict[str, Any] | None:
    """Return the metrics of a step, None where a line has none."""
    with suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict) and type(record.get("step")) is int:
            return record
    return None


def span(seconds: float) -> str:
    """Return a duration in the unit that suits it, such as `1.5 min` or `12.0 d`."""
    for unit, name, least in ((86400, "d", 2), (3600, "h", 1), (60, "min", 1)):
        if seconds >= least * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.0f} s" if seconds else "-"


def table_of(title: str, *headings: str) -> Table:
    """Return an empty table for the terminal."""
    folded = ("stage", "model", "training", "states")
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(Text(heading), overflow="fold", no_wrap=heading not in folded)
    return table


def _stage_table(study: Study, jobs: Sequence[Progress]) -> Table:
    table = table_of(f"{study.name}: stages", "stage", "jobs", "states", "of them")
    for stage in dict.fromkeys(job.stage for job in jobs):
        group = [job for job in jobs if job.stage == stage]
        states = Counter(job.state for job in group)
        shown = ", ".join(f"{count} {state}" for state, count in states.items())
        wanted, what = sum(job.of for job in group), "steps" if stage == "train" else "responses"
        counted = f"{sum(job.done for job in group):,} of {wanted:,} {what}" if wanted else ""
        table.add_row(*map(Text, (stage, str(len(group)), shown, counted)))
    return table


def _training_table(trainings: Sequence[Progress]) -> Table:
    headings = ("training", "state", "step", "acted in", "reward", "entropy", "at start")
    table = table_of("trainings", *headings)
    for job in trainings:
        values = (job.reward, job.entropy, job.entropy_start)
        numbers = ["" if x is None else f"{x:.3f}" for x in values]
        acted = "" if job.acted is None else str(job.acted)
        shown = (job.name, job.state, f"{job.done} of {job.of}", acted, *numbers)
        table.add_row(*map(Text, shown), style=STYLES.get(job.state, ""))
    return table
