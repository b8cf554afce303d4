"""Try regimes for the study `miniature`: train the methods of `regimes.yaml` in each, and log the outcome.

    python workflows/regimes.py [--cores 2]

Each regime is a study of its own, trained by Snakemake, so that Ctrl-C and the same command continue. The log
of all trainings so far is written to results/miniature/regimes.csv after each regime.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stapo import paths
from stapo.analysis.curves import moving_mean, width_of
from stapo.analysis.stability import entropy_numbers, warm_up_steps
from stapo.files import replace_file
from stapo.repository import ROOT
from stapo.study import Study, read_study
from stapo.study.identity import train_fingerprint

SEARCH = ROOT / "workflows" / "regimes.yaml"
LOG = ROOT / "results" / "miniature" / "regimes.csv"


def write_study(search: Mapping[str, Any], regime: str) -> Path:
    """Write the study of a regime, and return its path."""
    path = ROOT / "work" / "regimes" / f"{regime}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    study = {
        **search["regimes"][regime],
        "extends": search["study"],
        "name": f"regime-{regime}",
    }
    study["run"] = {"methods": search["methods"], "seeds": search["seeds"]}
    path.write_text(yaml.safe_dump(study))
    return path


def train(study: Path, cores: int) -> bool:
    """Train a regime; return whether all its trainings ended well."""
    command = ["-m", "snakemake", "--configfile", study, "--until", "train", "--cores", str(cores)]
    return subprocess.run([sys.executable, "-P", *command], cwd=ROOT).returncode == 0


def rows(regime: str, changed: Mapping[str, Any], study: Study) -> Iterator[dict[str, Any]]:
    """Yield one row for each finished training of a regime."""
    for run in study.runs():
        path = ROOT / paths.RESULTS.format(study=study.name) / f"runs/{run}/{paths.METRICS_FILE}"
        if not path.exists():
            continue
        steps = [json.loads(line) for line in path.read_text().splitlines()]
        entropy = entropy_numbers(
            np.array([step["entropy"] for step in steps]), warm_up_steps(study)
        )
        reward = moving_mean(np.array([step["reward"] for step in steps]), width_of(len(steps)))
        seconds = sum(
            sum(v for k, v in s["seconds"].items() if k in ("rollout", "update")) for s in steps
        )
        yield {
            "regime": regime,
            "settings": json.dumps(changed, sort_keys=True),
            "method": run.method,
            "seed": run.seed,
            "steps": len(steps),
            "reward_first": round(float(reward[0]), 3),
            "reward_best": round(float(reward.max()), 3),
            "reward_last": round(float(reward[-1]), 3),
            "entropy_first": round(entropy.level, 4),
            "entropy_last": round(
                float(np.mean([s["entropy"] for s in steps[-len(steps) // 20 :]])), 4
            ),
            "entropy_lowest": round(entropy.lowest, 3),
            "entropy_highest": round(entropy.highest, 3),
            "candidates_percent": round(
                100 * float(np.mean([s["candidate_fraction"] for s in steps])), 4
            ),
            "minutes": round(seconds / 60, 1),
            "fingerprint": train_fingerprint(study, run),
        }


def main() -> int:
    """Train all regimes, one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", type=int, default=2)
    cores = parser.parse_args().cores
    search = yaml.safe_load(SEARCH.read_text())
    right, found = True, []
    for regime, changed in search["regimes"].items():
        path = write_study(search, regime)
        right = train(path, cores) and right
        found += rows(regime, changed, read_study(path))
        if found:
            LOG.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(LOG, "w") as stream:
                table = csv.DictWriter(stream, found[0])
                table.writeheader()
                table.writerows(found)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
