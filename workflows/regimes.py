"""Try regimes for the study `miniature`: train the methods of `regimes.yaml` in each, and log the outcome.

    python workflows/regimes.py [--cores 2]

Each regime is a study of its own, trained by Snakemake, so that Ctrl-C and the same command continue. The log
is results/miniature/regimes.csv. A training that is in it with its present settings is not done
again, so that the search may go on elsewhere, and the rows of settings that have changed since stay.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stapo import paths
from stapo.analysis.curves import moving_mean, width_of
from stapo.analysis.tables.stability import entropy_numbers, warm_up_steps
from stapo.files import replace_file
from stapo.records.step import PHASES
from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import Study, TrainingRun, read_study

SEARCH = ROOT / "workflows" / "regimes.yaml"
LOG = ROOT / "results" / "miniature" / "regimes.csv"

Row = dict[str, Any]


def with_changes(first: Mapping[str, Any], changed: Mapping[str, Any]) -> Row:
    """Return settings with others in their place, section by section."""
    found = dict(first)
    for key, value in changed.items():
        inner = isinstance(value, Mapping)
        found[key] = with_changes(found.get(key, {}), value) if inner else value
    return found


def write_study(search: Mapping[str, Any], regime: str) -> Path:
    """Write the study of a regime, and return its path."""
    path = ROOT / "work" / "regimes" / f"{regime}.yaml"
    study = {
        **with_changes(search["first"], search["regimes"][regime]),
        "extends": search["study"],
        "name": f"regime-{regime}",
        "run": {"methods": search["methods"], "seeds": search["seeds"]},
        "evaluation": {"curve": None},
        "interventions": {"checkpoints": []},
    }
    with replace_file(path) as stream:
        yaml.safe_dump(study, stream)
    return path


def train(study: Path, cores: int) -> bool:
    """Train a regime; return whether all its trainings ended well."""
    command = ["-m", "snakemake", "--configfile", study, "--until", "train", "--cores", str(cores)]
    return subprocess.run([sys.executable, "-P", *command], cwd=ROOT, check=False).returncode == 0


def row(study: Study, run: TrainingRun, regime: str, changed: Mapping[str, Any]) -> Row:
    """Return what a finished training shows; its relative entropies are those of docs/stability.md."""
    path = ROOT / paths.METRICS.format(study=study.name, **run.wildcards)
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    width = width_of(len(steps))
    numbers = entropy_numbers(np.array([step["entropy"] for step in steps]), warm_up_steps(study))
    entropy, reward, candidates = (
        moving_mean(np.array([step[name] for step in steps]), width)
        for name in ("entropy", "reward", "candidate_fraction")
    )
    seconds = sum(step["seconds"].get(phase, 0.0) for step in steps for phase in PHASES)
    return {
        "regime": regime,
        "settings": json.dumps(changed, sort_keys=True),
        "method": run.method,
        "seed": run.seed,
        "steps": len(steps),
        "reward_first": round(float(reward[0]), 3),
        "reward_best": round(float(reward.max()), 3),
        "reward_last": round(float(reward[-1]), 3),
        "entropy_first": round(float(entropy[0]), 4),
        "entropy_last": round(float(entropy[-1]), 4),
        "lowest_entropy": round(numbers.lowest, 3),
        "highest_entropy": round(numbers.highest, 3),
        "candidates_percent": round(100 * float(candidates.mean()), 4),
        "minutes": round(seconds / 60, 1),
        "fingerprint": jobs_of(study).one("train", run).fingerprint,
    }


def logged() -> list[Row]:
    """Return the rows of the log."""
    if not LOG.exists():
        return []
    with LOG.open(newline="") as stream:
        return list(csv.DictReader(stream))


def add(rows: list[Row]) -> None:
    """Add rows to the log."""
    everything = [*logged(), *rows]
    with replace_file(LOG) as stream:
        table = csv.DictWriter(stream, everything[0], lineterminator="\n")
        table.writeheader()
        table.writerows(everything)


def main() -> int:
    """Train what is missing of all regimes, one after another; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", type=int, default=2)
    cores, search = parser.parse_args().cores, yaml.safe_load(SEARCH.read_text())
    right = True
    for regime, changed in search["regimes"].items():
        path = write_study(search, regime)
        study, known = read_study(path), {row["fingerprint"] for row in logged()}
        missing = [
            run for run in study.runs() if jobs_of(study).one("train", run).fingerprint not in known
        ]
        if not missing:
            continue
        if train(path, cores):
            add([row(study, run, regime, changed) for run in missing])
        else:
            right = False
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
