"""A directory in which Snakemake runs a study, with real stages or with stages of milliseconds (`stub`)."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml

from stapo.suite.repository import ROOT, STUDIES
from stapo.suite.study import Study, merge, read_study

STUB = Path(__file__).with_name("stub")
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
SMOKE = yaml.safe_load((STUDIES / "quickstart" / "smoke.yaml").read_text())
SMALLER = yaml.safe_load("""
models: {tiny: {supervised_steps: 60, hidden_size: 64}}
data: {prompts: 128}
training: {steps: 8, prompts_per_batch: 16, group_size: 4, prompts_per_mini_batch: 4}
benchmarks: {chain-2: {samples: 4}, chain-3: {samples: 2}}
run: {benchmarks: [chain-2, chain-3], decodings: [t1.0-p1.0]}
""")
REDUCED = merge(SMOKE, SMALLER)
"""The smoke study for real stages: everything is there, only smaller."""
STATES = merge(
    SMOKE,
    {
        "name": "states",
        "training": {"steps": 8},
        "run": {"methods": ["stapo"], "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2"]},
    },
)
"""For stages of milliseconds: one job of each rule, where possible."""


class World:
    """A directory in which a study is changed and run; `study` is the content of its file."""

    def __init__(self, path: Path, study: dict[str, Any], stub: bool = False) -> None:
        self.path, self.study, self.stub = path, copy.deepcopy(study), stub
        self.file, self.log = "study.yaml", path.with_name(f"{path.name}.log")
        self.options = ("--cores", "2")
        path.mkdir(parents=True, exist_ok=True)

    def change(self, change: dict[str, Any]) -> None:
        self.study = merge(self.study, change)

    def write(self, text: str | None = None) -> Path:
        """Write the study file, as given or as it is now; return its path."""
        path = self.path / self.file
        path.write_text(text or yaml.safe_dump(self.study, sort_keys=False))
        return path

    def parsed(self) -> Study:
        """Write the study file and read it."""
        return read_study(self.write())

    def start(self, *args: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start Snakemake on the study file, with the default profile and `options`."""
        if self.stub:
            environment["PYTHONPATH"] = str(STUB)
        with self.log.open("wb") as log:
            return subprocess.Popen(
                # Targets first: behind `--quiet rules` they would be taken for more of its values.
                [*SNAKEMAKE, *args, "--configfile", self.file, *self.options],
                cwd=self.path,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def snakemake(self, *args: str, **environment: str) -> tuple[int, str]:
        """Run Snakemake on the study file; return its code and what it said."""
        running = self.start(*args, **environment)
        try:
            return running.wait(1200), self.log.read_text()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)

    def run(self, *args: str) -> str:
        """Run the study as it is now to the end, and return what was said."""
        self.write()
        code, said = self.snakemake(*args)
        assert code == 0, said
        return said

    def interrupt(self, seconds: float, sent: signal.Signals, everything: bool) -> None:
        """Run, and send a signal to Snakemake, or to it and all of its jobs."""
        running = self.start()
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            (os.killpg if everything else os.kill)(running.pid, sent)
            if everything and sent == signal.SIGINT:  # Impatient people press Ctrl-C twice.
                time.sleep(0.3)
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, sent)
            running.wait(120)
            said = self.log.read_text()
            # Before the Snakefile is read, nothing of ours can catch a signal.
            assert "Traceback" not in said or "study:" not in said, said

    def other_times(self, seed: int) -> None:
        """Give the results other times, in a random order."""
        files = [one for one in sorted((self.path / "results").rglob("*")) if one.is_file()]
        for second, file in enumerate(Random(seed).sample(files, len(files))):
            os.utime(file, (1.7e9 + second, 1.7e9 + second))

    def jobs(self, *targets: str) -> dict[str, int]:
        """Return how many jobs of each rule a dry run announces."""
        return counted(self.run(*targets, "-n", "-p"))

    def read(self, path: str) -> Any:
        """Return the content of a JSON file."""
        return json.loads((self.path / path).read_text())


def counted(said: str) -> dict[str, int]:
    """Return how many jobs of each rule Snakemake announced."""
    lines = said.split("Job stats:")
    if len(lines) == 1:
        return {}
    rows = [line.split() for line in lines[1].split("total")[0].splitlines()[3:]]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] != "all"}
