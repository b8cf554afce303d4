"""A directory in which Snakemake runs a reduced study of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from stapo.repository import ROOT

REDUCED = {
    "models": {"tiny": {"supervised_steps": 60, "hidden_size": 64}},
    "data": {"prompts": 128},
    "training": {
        "steps": 8,
        "prompts_per_batch": 16,
        "group_size": 4,
        "prompts_per_mini_batch": 4,
        "checkpoint_every": 1,
    },
    "benchmarks": {"chain-2": {"samples": 4}, "chain-3": {"samples": 2}},
    "run": {"benchmarks": ["chain-2", "chain-3"]},
}
"""Merged over the smoke study: everything is there, only smaller."""


class Workspace:
    """A directory with a study of its own, in which Snakemake runs."""

    def __init__(self, path: Path, study: dict[str, Any]):
        self.path = path
        self.study = study

    def write(self, text: str | None = None) -> None:
        """Write the study file, as given or as it is now."""
        (self.path / "study.yaml").write_text(text or yaml.safe_dump(self.study, sort_keys=False))

    def snakemake(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake on the study and return what it said."""
        command = [
            *(sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")),
            *("--configfile", "study.yaml", "--cores", "2", "--retries", "1"),
            *args,
        ]
        return subprocess.run(
            command,
            cwd=self.path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def jobs(self, *args: str) -> dict[str, int]:
        """Return how many jobs of each rule a dry run announces."""
        # Targets first: behind `--quiet rules` they would be taken for more of its values.
        done = self.snakemake(*args, "-n", "--quiet", "rules")
        assert done.returncode == 0, done.stderr + done.stdout
        lines = (done.stdout + done.stderr).split("Job stats:")
        if len(lines) == 1:
            return {}
        table = lines[1].split("total")[0].splitlines()[3:]
        rows = [line.split() for line in table]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] != "all"}

    def read(self, path: str) -> Any:
        """Return the content of a JSON file."""
        return json.loads((self.path / path).read_text())
