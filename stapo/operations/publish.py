"""What a finished study says of itself: provenance and the checksums of everything in its folder."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stapo import artifacts
from stapo.models.base import SOURCE
from stapo.provenance import environment, file_sha256
from stapo.study import Study, benchmark_definitions, fingerprint


def write_provenance(study: Study, root: Path = Path()) -> list[Path]:
    """Write `provenance.json` and `SHA256SUMS` of a finished study; return their paths.

    `sha256sum --check` reads the latter. Checksums of weights are those that the trainings took when they
    published them, so that weights which were swapped since do not pass.
    """
    folder = root / artifacts.RESULTS.format(study=study.name)
    runs = read_runs(study, root)
    about = root / artifacts.PROVENANCE.format(study=study.name)
    artifacts.write_json(about, _provenance(study, runs, root))
    known = {
        str(Path(artifacts.METRICS.format(study=study.name, **run["run"])).parent / path): digest
        for run in runs
        for path, digest in run["outputs"].items()
    }
    lines = []
    for path in listed(folder):
        digest = known.get(str(path.relative_to(root))) or file_sha256(path)
        lines.append(f"{digest}  {path.relative_to(folder)}\n")
    sums = root / artifacts.CHECKSUMS.format(study=study.name)
    with artifacts.replace_file(sums) as stream:
        stream.writelines(lines)
    return [about, sums]


def listed(folder: Path) -> list[Path]:
    """Return the files of a results folder that have a checksum: all but the list itself."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if path != folder / "SHA256SUMS")


def read_runs(study: Study, root: Path) -> list[dict[str, Any]]:
    """Return what each training left, with its size, method and seed under `run`."""
    found = []
    for size, method, seed in study.runs():
        run = {"size": size, "method": method, "seed": seed}
        path = root / artifacts.RUN_PROVENANCE.format(study=study.name, **run)
        found.append({**json.loads(path.read_text()), "run": run})
    return found


def _sources(study: Study, root: Path) -> dict[str, Any]:
    """Return where the models came from, with the commit that a branch was at."""
    places = {
        size: artifacts.BASE_MODEL.format(study=study.name, size=size) for size in study.run.sizes
    }
    places["verifier"] = artifacts.VERIFIER.format(study=study.name)
    found = {name: root / place / SOURCE for name, place in places.items()}
    return {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}


def _provenance(study: Study, runs: list[dict[str, Any]], root: Path) -> dict[str, Any]:
    joules = [run["joules"] for run in runs]
    benchmarks = {name: benchmark_definitions()[name]["metadata"] for name in study.evaluated()}
    return {
        "study": study.model_dump(mode="json"),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "models": _sources(study, root),
        "benchmarks": benchmarks,
        "base": {run["run"]["size"]: run["base"] for run in runs},
        "prompts": runs[0]["prompts"] if runs else None,
        "fingerprints": {
            checkpoint: fingerprint(study.checkpoint_config(checkpoint))
            for checkpoint in study.checkpoints()
        },
        "training_seconds": sum(run["seconds"] for run in runs),
        "training_gpu_hours": sum(run["gpu_seconds"] for run in runs) / 3600,
        # A run without a meter would make the sum a wrong number.
        "training_joules": None if None in joules else sum(joules),
    }
