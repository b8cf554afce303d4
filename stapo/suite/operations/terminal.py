"""What `snakemake` shows: a line per job, a table for a dry run, and the command that goes on.

Snakemake logs records with the fields of its interface for logger plugins. The handler here replaces the one
for the terminal. It is no plugin, because Snakemake does not find those of an editable installation.
"""

import logging
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shutil import which
from statistics import mean
from threading import Event, Thread
from typing import Any

from stapo.suite import paths
from stapo.suite.jobs import STAGES
from stapo.suite.operations.check import idle
from stapo.suite.operations.memory import too_large
from stapo.suite.operations.plan import plan
from stapo.suite.operations.status import (
    BY_SIGNAL,
    CTRL_C,
    IN_WORK,
    KILLED,
    error_in,
    lines_of,
    progress,
    span,
)
from stapo.suite.study import Study, StudyError
from stapo.suite.study.loader import shown_path

NO_STUDY = (
    "none given; the smallest one takes minutes on two CPU cores:",
    "  snakemake --configfile workflows/studies/quickstart/smoke.yaml",
    "your own: docs/extend.md; before a long run: stapo check STUDY, stapo plan STUDY",
)
JOB = re.compile(r" -m stapo run (\w+) (\S*) --study ")
NO_JOB = re.compile("(total|all)$|method_")
REPEATED = re.compile(
    "CalledProcessError|^Exiting because|At least one job did not complete|^Restored previous "
)
"""What says again that a job failed; whether there were earlier results, which stay, is no news."""
EVERY = 300.0
"""Seconds between two lines about a job that takes long."""


class Terminal(logging.Handler):
    """Shows a run on some GPUs (name and number); Snakemake's handler shows errors and all else."""

    def __init__(
        self, snakemake: logging.Handler, study: Study, on: tuple[str, int], dry: bool
    ) -> None:
        super().__init__()
        self.snakemake, self.study, self.on, self.dry, self.begun = snakemake, study, on, dry, 0.0
        # Mean seconds of a job by stage, and by `stage model`.
        self.planned = defaultdict[str, float](float)
        self.left: Counter[str] = Counter()  # Jobs by rule that have not ended.
        self.jobs: dict[int, tuple[str, str, str, float]] = {}  # Rule, name, reason, start.
        self.took: dict[str, list[float]] = {}  # Seconds of the jobs that have ended, by rule.
        self.running: dict[int, str] = {}  # Names of jobs that take long.
        self.ended = Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record of Snakemake; no error in here ends a run."""
        event, said = getattr(record, "event", None), str(record.msg)
        told = record.levelno > logging.INFO or said.startswith(("Nothing to be", "Terminating"))
        try:
            if event == "workflow_started":
                self.begun = time.monotonic()
            elif self.begun and (shown := getattr(self, f"_{event}", None)):
                shown(record)
            elif not self.begun or (told and not REPEATED.search(said)):
                self.snakemake.handle(record)
        except Exception:
            self.handleError(record)

    def _run_info(self, record: Any) -> None:
        if self.jobs:
            return self._end_dry_run()
        with suppress(StudyError):  # Models of unknown shape.
            costs: dict[str, Counter[str]] = {}
            for (stage, model), cost in plan(self.study, *self.on).items():
                costs[f"{stage} {model}"] = cost
                costs[stage] = costs.get(stage, Counter()) + cost
            self.planned |= {
                name: 3600 * cost["hours"] / cost["jobs"] for name, cost in costs.items()
            }
        self.left.update({k: n for k, n in record.stats.items() if not NO_JOB.match(k)})
        counts = ", ".join(f"{count} {rule}" for rule, count in self.left.items())
        tell([f"{self.left.total()} jobs: {counts}{self._time_left()}"] * (not self.dry))

    def _job_info(self, record: Any) -> None:
        if named := JOB.search(record.shellcmd or ""):
            name, reason = " ".join(named.groups()).rstrip(), record.reason.partition(":")[0]
            self.jobs[record.jobid] = record.rule_name, name, reason.lower(), time.monotonic()
            is_long = named[1] in ("base", "train", "intervene") or self.planned[named[1]] > 60
            if is_long and not self.dry:
                self._say(f"started {name}")
                if not self.running:
                    self.ended = Event()
                    Thread(target=self._watch, args=(self.ended,), daemon=True).start()
                self.running[record.jobid] = name

    def _watch(self, ended: Event) -> None:
        """Tell now and then how far long jobs are, until none runs."""
        while not ended.wait(EVERY):
            with suppress(OSError, ValueError):  # Files that are written at this moment.
                self.tell_running()

    def tell_running(self) -> None:
        """Print a line for each job that takes long, with what it has done so far."""
        counts = {f"{job.stage} {job.name}": (job.done, job.of) for job in progress(self.study)}
        for number, name in [*self.running.items()]:
            done, total = counts.get(name, (0, 0))
            after = span(time.monotonic() - self.jobs[number][3])
            self._say(f"running {name}" + f": {done} of {total}" * bool(total) + f", after {after}")

    def _no_longer(self, number: int) -> None:
        if self.running.pop(number, None) and not self.running:
            self.ended.set()

    def _job_finished(self, record: Any) -> None:
        self._no_longer(record.job_id)
        if record.job_id in self.jobs and not self.dry:
            rule, name, _, start = self.jobs[record.job_id]
            self.left[rule] -= 1
            self.took.setdefault(rule, []).append(time.monotonic() - start)
            self._say(f"ended {name} after {span(self.took[rule][-1])}{self._time_left()}")

    def _job_error(self, record: Any) -> None:
        self._no_longer(record.jobid)
        name, log = self.jobs[record.jobid][1], record.log[0]
        cause = error_in(Path(log), 0.0) or KILLED
        ended = f"stopped {name} {BY_SIGNAL}" if CTRL_C.search(cause) else f"failed {name}: {cause}"
        self._say(f"{ended}; log: {log}")

    def _say(self, what: str) -> None:
        ended = sum(map(len, self.took.values()))
        count = f"{ended}/{ended + self.left.total()}"
        print(f"{time.strftime('%a %H:%M')} [{count}] {what}", file=sys.stderr)  # noqa: T201

    def _time_left(self) -> str:
        """Return about how long the rest takes: by this run's own times, before them by `stapo plan`."""
        seconds, busy = 0.0, sum(map(sum, self.took.values()))
        for rule, count in self.left.items():
            seconds += count * mean(self.took.get(rule) or [self.planned[rule.partition("_")[0]]])
        seconds /= max(busy / (time.monotonic() - self.begun), 1.0)
        return f"; about {span(seconds)} left" if seconds else ""

    def _end_dry_run(self) -> None:
        lines, ready = ["stage        jobs  each about  why"], Counter[str]()
        if Path("work").exists():
            ready.update(state.stage for state in progress(self.study) if state.note == IN_WORK)
        for stage in STAGES:
            asked = [job for job in self.jobs.values() if job[1].split()[0] == stage]
            if why := [job[2] for job in asked]:
                seconds = mean(self.planned[job[1].partition("/")[0]] for job in asked)
                reasons = ", ".join(dict.fromkeys(why))
                reasons += f"; {ready[stage]} in work/, not made again" * (stage in ready)
                lines.append(f"{stage:11} {len(why):5}  {span(seconds):>10}  {reasons}")
        lines.append("times: stapo plan on {1} x {0}; Snakemake's own output: -p".format(*self.on))
        tell([*lines, f"start: {command(without=('-n', '--dry-run', '--dryrun'))}"])


def command(without: Iterable[str] = ()) -> str:
    """Return the command that this process was started with, quoted for a shell."""
    name, words = Path(sys.argv[0]).name, [*sys.argv]
    words[0] = name if which(name) == words[0] else words[0]
    if name == "__main__.py":  # As in `make smoke`, whose environment a terminal need not have.
        words = [shown_path(Path(sys.executable)), *sys.orig_argv[1:]]
    return shlex.join(word for word in words if word not in without)


def tell(lines: Iterable[object]) -> None:
    """Print lines about a run to the standard error, where Snakemake prints."""
    for line in lines:
        print(f"study: {line}", file=sys.stderr)  # noqa: T201


def first_lines(study: Study, file: str, log: str, on_cpu: Iterable[str] = ()) -> list[str]:
    """Return what is made again, doubts, and where the progress of a run of a study file is.

    `on_cpu` are the stages that run on the CPUs of this machine.
    """
    doubts = [*idle(study)]
    with suppress(StudyError):  # Models of unknown shape.
        doubts += too_large(study, on_cpu)
    watch = f"logs: logs/{study.name}/, {log}; progress, in another terminal: stapo status {file}"
    return [*lines_of("outdated", progress(study)), *(f"warning: {x}" for x in doubts), watch]


def tell_end(study: Study, file: str, succeeded: bool) -> None:
    """Print where the results of a run are, or what is left, and after a failure the command that goes on."""
    stages = progress(study)
    if succeeded and all(stage.state == "done" for stage in stages):
        check = f"stapo verify {paths.RESULTS.format(study=study.name)}"
        results = {**paths.results_of(study), "show": f"stapo show {file}", "check": check}
        tell([f"{study.name} is finished", *(f"  {k:8}{path}" for k, path in results.items())])
        return
    left = f"not finished; what is left: stapo status {file}; logs: logs/{study.name}/"
    tell([*lines_of("failed", stages), left])
    if not succeeded:
        tell(["to go on:"])
        print(command(), file=sys.stderr)  # noqa: T201
