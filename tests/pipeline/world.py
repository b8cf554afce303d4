"""A study with stages of milliseconds (`stub`); Snakemake, rules, locks and publishing are the real ones."""

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from stapo.repository import ROOT
from stapo.study import Study, merge, read_study

STUB = Path(__file__).with_name("stub")
SMOKE = yaml.safe_load((ROOT / "workflows" / "studies" / "smoke.yaml").read_text())
STUDY = merge(
    SMOKE,
    {
        "name": "states",
        "training": {"steps": 8},
        "run": {
            "methods": ["justrl", "stapo"],
            "decodings": ["t1.0-p1.0"],
            "benchmarks": ["chain-2"],
        },
    },
)


class World:
    """A directory in which a study is changed and run."""

    def __init__(self, path: Path, study: dict[str, Any] = STUDY) -> None:
        self.path, self.raw = path, copy.deepcopy(study)
        path.mkdir(parents=True)

    def change(self, change: dict[str, Any]) -> None:
        self.raw = merge(self.raw, change)

    def study(self) -> Study:
        path = self.path / "study.yaml"
        path.write_text(yaml.safe_dump(self.raw, sort_keys=False))
        return read_study(path)

    def start(self, *args: str) -> subprocess.Popen[str]:
        self.study()
        return subprocess.Popen(
            # The default profile, and nothing else.
            [
                *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")),
                *("--configfile", "study.yaml", "--cores", "4", *args),
            ],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(STUB), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str) -> str:
        """Run to the end and return what was said."""
        running = self.start(*args)
        said, _ = running.communicate(timeout=300)
        assert running.returncode == 0, said
        return said

    def interrupt(self, seconds: float, sent: signal.Signals, everything: bool) -> None:
        """Run, and send a signal to Snakemake, or to it and all of its jobs."""
        running = self.start()
        try:
            running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            (os.killpg if everything else os.kill)(running.pid, sent)
            # What Snakemake left may still hold its output open.
            running.wait(120)
        assert running.stdout is not None
        running.stdout.close()

    def jobs(self, *targets: str) -> dict[str, int]:
        """Return how many jobs of each rule a dry run would run."""
        return counted(self.run(*targets, "-n", "--quiet", "rules"))


def counted(said: str) -> dict[str, int]:
    """Return how many jobs of each rule Snakemake announced."""
    lines = said.split("Job stats:")
    if len(lines) == 1:
        return {}
    rows = [line.split() for line in lines[1].split("total")[0].splitlines()[3:]]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] != "all"}
