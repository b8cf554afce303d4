"""How far a study is: every training and every evaluation, from files alone.

Nothing is started, locked or written, so that it works beside a running study, also one on Slurm. Files are
taken as they are found: what is truncated, corrupt or malicious is treated as missing, and raises no error.
"""

import json
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo import paths
from stapo.files import text_of
from stapo.operations.current import is_trained, outputs, score_state
from stapo.operations.job_logs import (
    Owner,
    error_in,
    last_line,
    logs_of,
    modified,
    number,
    owner_of,
)
from stapo.operations.reasons import reason
from stapo.records.step import ROLLOUT, UPDATE, StepRecord, from_line
from stapo.stages import Job, jobs_of, recorded_in_json
from stapo.stages.generate import place
from stapo.study import Checkpoint, Study, TrainingRun

RECENT = 20
"""Records whose median is the speed: one slow step does not show in it."""
QUIET_SECONDS = 900.0
"""Without news, after which a job on another host may be dead (or five steps); our assumption."""
CTRL_C = re.compile("^stapo: stopped|^KeyboardInterrupt")
STOPPED = re.compile(f"{CTRL_C.pattern}|DUE TO (TIME LIMIT|PREEMPTION)")
"""Ends of a job that the next call continues; no failures."""
STYLES = dict.fromkeys(("silent", "stopped", "outdated"), "yellow") | {"failed": "red"}
STYLES |= {"training": "cyan", "answering": "cyan", "done": "green", "scored": "green"}


@dataclass(frozen=True)
class TrainingState:
    """How far one training is."""

    run: TrainingRun
    state: str
    """waiting, training, silent, stopped, failed, done or outdated."""
    note: str = ""
    step: int = 0
    reward: float | None = None
    """Of the last step, in [-1, 1]."""
    entropy: float | None = None
    """Of the last step, nats."""
    seconds_left: float | None = None


@dataclass(frozen=True)
class Answers:
    """How far the evaluation of one checkpoint under one decoding is."""

    checkpoint: Checkpoint
    decoding: str
    state: str
    """waiting, answering, silent, stopped, failed, incomplete, answered, scored or outdated."""
    note: str
    responses: int
    wanted: int
    scored: int
    """Benchmarks with scores of the study as it is now."""
    benchmarks: int


def trainings(study: Study, root: Path = Path()) -> list[TrainingState]:
    """Return how far every training is.

    Args:
        study: as it is now; what other settings left behind is `outdated`.
        root: working directory of the pipeline.
    """
    return [_training(study, root, run) for run in study.runs()]


def answers(study: Study, root: Path = Path()) -> list[Answers]:
    """Return how far the evaluation of every checkpoint is, under every decoding.

    Before they are scored, the responses to a benchmark are counted in its newest store.
    """
    return [_answers(study, root, job) for job in jobs_of(study).all("generate")]


def print_status(study: Study, console: Console, root: Path = Path()) -> bool:
    """Print one screen; return whether nothing failed."""
    trained, evaluations = trainings(study, root), answers(study, root)
    console.print(_training_table(study, trained))
    console.print(_answers_table(study, evaluations))
    made = [f"{name}: {state}" for name, state in outputs(study, root).items()]
    console.print(Text("; ".join(made)))
    notes = _notes(trained, evaluations)
    for state, line in notes:
        console.print(Text(line, style=STYLES.get(state, "")))
    failed = any(state == "failed" for state, _ in notes)
    if failed:
        hint = "logs lie in logs/; once the cause is gone, the same snakemake command continues"
        console.print(Text(hint))
    elif any(state == "stopped" for state, _ in notes):
        console.print(Text("what was stopped continues with the same snakemake command"))
    return not failed


def _notes(trained: list[TrainingState], evaluations: list[Answers]) -> list[tuple[str, str]]:
    """Return state and line for each note; those with the same one share a line."""
    names: dict[tuple[str, str], list[str]] = {}
    for t in trained:
        names.setdefault((t.state, t.note), []).append(str(t.run))
    for a in evaluations:
        names.setdefault((a.state, a.note), []).append(f"{a.checkpoint} {a.decoding}")
    lines = []
    for (state, note), of in names.items():
        more = f" and {len(of) - 3} more" if len(of) > 3 else ""
        lines += [(state, f"{state}: {', '.join(of[:3])}{more}: {note}")] * bool(note)
    return lines


def outdated_lines(study: Study, root: Path = Path()) -> list[str]:
    """Return a line for each reason why results are made again, with the settings that changed."""
    notes = _notes(trainings(study, root), answers(study, root))
    return [line for state, line in notes if state == "outdated"]


def seconds_per_step(records: list[StepRecord], per_rollout: int) -> float | None:
    """Return the recent seconds of an optimiser step with its share of the rollout, None without records.

    Rollout and update have medians of their own: `per_rollout` steps share a rollout, and only the first of
    them records it. What is not recorded (checkpoints, starting) is not in it.
    """
    update, rollout = (
        [x for r in records if (x := number(r.seconds.get(phase))) is not None][-RECENT:]
        for phase in (UPDATE, ROLLOUT)
    )
    if not update:
        return None
    return statistics.median(update) + statistics.median(rollout or [0.0]) / per_rollout


def _training(study: Study, root: Path, run: TrainingRun) -> TrainingState:
    at, job = {"study": study.name, **run.wildcards}, jobs_of(study).one("train", run)
    work = root / paths.TRAIN_WORK.format(fingerprint=job.fingerprint)
    owner = owner_of(work / "lock")
    published, metrics = (root / p.format(**at) for p in (paths.RUN_PROVENANCE, paths.METRICS))
    if not (owner and owner.holds) and is_trained(study, root, run):
        return _measured(study, TrainingState(run, "done"), metrics)
    logs = logs_of(root, paths.MODEL.format(**at), "train", "_".join(map(str, run)))
    if owner is None:
        ended, note = _end(error_in(logs, 0, work.name))
        if ended != "failed" and modified(published):
            if not modified(metrics):
                return TrainingState(run, "waiting", "only its record is here, as in git")
            same = recorded_in_json(published) == job.fingerprint
            why = "weights after other steps" if same else reason(study, root, job)
            return TrainingState(run, "outdated", f"made with {why}")
        if ended:
            return TrainingState(run, ended, note)
        return TrainingState(run, *_missing(root, at))
    training = _measured(study, TrainingState(run, "training"), work / "metrics.jsonl")
    left = study.training.steps - training.step
    pace = training.seconds_left / left if training.seconds_left and left > 0 else 0.0
    news = max(modified(work / "metrics.jsonl"), owner.since)
    state, note = _process(owner, news, 5 * pace, error_in(logs, owner.since, work.name))
    if state == "running":
        return replace(training, note="; ".join(filter(None, (note, training.note))))
    if state == "stopped" and left <= 0:
        note = "all steps are done; the next run publishes them"
    return replace(training, state=state, note=note, seconds_left=None)


def _missing(root: Path, at: dict[str, Any]) -> tuple[str, str]:
    """Return state and note of a training that was never started."""
    notes = []
    for name, path, rule, wildcards in (
        ("prompts", paths.PROMPTS, "prompts", ""),
        ("base model", paths.BASE_MODEL, "base_model", at["size"]),
    ):
        output = path.format(**at)
        if not modified(root / output):
            logs = logs_of(root, output, rule, wildcards)
            if error := error_in(logs, 0, ""):
                state, note = _end(error)
                return state, f"{name}: {note}"
            said = last_line(logs[0])
            notes.append(f"no {name} yet" + f" ({said}; log: {logs[0]})" * bool(said))
    return "waiting", ", ".join(notes)


def _measured(study: Study, training: TrainingState, metrics: Path) -> TrainingState:
    """Return a training with what its records say."""
    records = []
    for line in text_of(metrics).split("\n"):
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and type(record.get("step")) is int:
                records.append(from_line(record))
    if not records:
        return training
    last = records[-1]
    reward, entropy = number(last.reward), number(last.entropy)
    settings = study.training_of(training.run.method)
    per_rollout = settings.prompts_per_batch // settings.prompts_per_mini_batch
    pace, left = seconds_per_step(records, per_rollout), study.training.steps - last.step
    seconds_left = None if pace is None or training.state != "training" else pace * max(left, 0)
    # Without advantages, a selection may have nothing to keep.
    empty = sum(r.kept_fraction == 0 and r.zero_advantage_fraction < 1 for r in records)
    note = f"its token selection kept no token in {empty} of {len(records)} steps" if empty else ""
    return replace(
        training,
        note=note,
        step=last.step,
        reward=reward,
        entropy=entropy,
        seconds_left=seconds_left,
    )


def _answers(study: Study, root: Path, job: Job) -> Answers:
    """Return how far an evaluation is; `job` generates its responses."""
    of, (checkpoint, decoding) = jobs_of(study), place(job)
    work = root / paths.GENERATE_WORK.format(fingerprint=job.fingerprint)
    cells = {name: of.one("score", f"{job.name}/{name}") for name in job.also}
    states = {name: score_state(cell, root) for name, cell in cells.items()}
    asked = {name: study.problems(name) * job.also[name]["samples"] for name in cells}
    responses, wanted = 0, sum(asked.values())
    for name, number_asked in asked.items():
        stored = number_asked if states[name] == "current" else _stored(work, name)
        responses += min(stored, number_asked)
    scored = [*states.values()].count("current")
    done = Answers(checkpoint, decoding, "scored", "", responses, wanted, scored, len(cells))
    if scored == len(cells):
        return done
    owner, outdated = owner_of(work / "lock"), [n for n, s in states.items() if s == "outdated"]
    rule = "" if study.is_full(checkpoint) else "_curve"
    place_of_logs = {"generate": paths.RESPONSES, "score": paths.SCORES.rpartition("/")[0]}
    stage = "score" if responses == wanted else "generate"
    at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
    logs = logs_of(
        root, place_of_logs[stage].format(**at), stage + rule, f"{checkpoint}_{decoding}"
    )
    since = owner.since if owner else 0.0
    error = error_in(logs, since, of.made_by(stage, job.name))
    ended, why = _end(error)
    if owner and (owner.holds or stage == "generate"):
        news = max([owner.since, *(modified(path) for path in work.glob("*.jsonl"))])
        state, note = _process(owner, news, 0.0, error)
        state = "answering" if state == "running" else state
    elif ended == "failed" or (ended and not outdated):
        state, note = ended, why
    elif outdated:
        state, note = "outdated", f"scored with {reason(study, root, cells[outdated[0]])}"
    else:
        state, note = {0: "waiting", wanted: "answered"}.get(responses, "incomplete"), ""
    return replace(done, state=state, note=note)


def _stored(work: Path, benchmark: str) -> int:
    """Return how many responses to a benchmark are in its newest store."""
    stores = work.glob(f"{benchmark}-{'[0-9a-f]' * 16}.jsonl")
    newest = max(stores, key=modified, default=None)
    with suppress(OSError):
        if newest:
            with newest.open("rb") as lines:
                return sum(line.endswith(b"\n") for line in lines)
    return 0


def _end(error: str | None) -> tuple[str, str]:
    """Return state and note of a job by the last error in its log; both are empty without one."""
    if not error:
        return "", ""
    if CTRL_C.search(error):
        return "stopped", "by Ctrl-C or another signal"
    return ("stopped" if STOPPED.search(error) else "failed"), error


def _process(owner: Owner, news: float, patience: float, error: str | None) -> tuple[str, str]:
    """Return state and note of what took the lock of a work directory and has not finished."""
    quiet = max(time.time() - news, 0.0)
    if owner.holds:
        return "running", ""
    if error:
        return _end(error)
    if owner.host in ("", os.uname().nodename):
        return (
            "stopped",
            "exited without an error, possibly killed; it resumes from its last checkpoint",
        )
    if quiet < max(QUIET_SECONDS, patience):
        return "running", f"on {owner.host}"
    return (
        "silent",
        f"no news for {_span(quiet)} from {owner.host}; look whether its job still runs",
    )


def _span(seconds: float) -> str:
    """Return a duration in words."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"


def _table(title: str, headings: Iterable[str]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    return table


def _training_table(study: Study, states: list[TrainingState]) -> Table:
    headings = ("size", "method", "seed", "state", "step", "reward", "entropy", "left, about")
    table = _table(f"{study.name}: trainings", headings)
    for t in states:
        numbers = ["" if x is None else f"{x:.3f}" for x in (t.reward, t.entropy)]
        left = "" if t.seconds_left is None else _span(t.seconds_left)
        step = f"{t.step} of {study.training.steps}" if t.state != "outdated" else ""
        shown = [*map(str, t.run), t.state, step, *numbers, left]
        table.add_row(*map(Text, shown), style=STYLES.get(t.state, ""))
    return table


def _answers_table(study: Study, evaluations: list[Answers]) -> Table:
    """Return a row per checkpoint; the weights of a training before its last step share one or two."""
    table = _table(f"{study.name}: evaluations", ["checkpoint", *study.run.decodings])
    rows: dict[str, dict[str, list[Answers]]] = {}
    for a in evaluations:
        last = str(replace(a.checkpoint, step=None))
        steps = "/step*" if study.is_full(a.checkpoint) else "/step* (curve)"
        row = rows.setdefault(last + ("" if a.checkpoint.step is None else steps), {})
        row.setdefault(a.decoding, []).append(a)
    for name, columns in rows.items():
        found = [columns.get(decoding, []) for decoding in study.run.decodings]
        table.add_row(Text(name), *map(_answers_cell, found))
    return table


def _answers_cell(found: list[Answers]) -> Text:
    if len(found) != 1:
        states = Counter(a.state for a in found)
        return Text(", ".join(f"{count} {state}" for state, count in states.items()))
    (a,) = found
    counts = "" if a.state == "scored" else f" {a.responses:,}/{a.wanted:,}"
    scored = f", {a.scored}/{a.benchmarks} scored" if 0 < a.scored < a.benchmarks else ""
    return Text(a.state + counts + scored, style=STYLES.get(a.state, ""))
