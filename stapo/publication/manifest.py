"""What a finished study says of itself: provenance and the checksums of everything that belongs to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.files import AGAIN, DamagedFileError, fingerprint, read_json, replace_file, write_json
from stapo.provenance import SUMS, environment, file_sha256, is_hidden
from stapo.stages import jobs_of
from stapo.stages.train import of_checkpoint
from stapo.study import Checkpoint, Study, TrainingRun
from stapo.study.files import FILES, SOURCE
from stapo.study.reading import published_content

WEIGHTS = ".safetensors"
KINDS = ("models", "runs", "completions", "scores", "interventions")
ADDED = ("README.md", "regimes.csv")
"""What authors may put into the folder of a study: an introduction, and the settings that they tried."""
SUFFIXES = (".jsonl", ".json", ".jinja", ".parquet", WEIGHTS)
"""Of what other methods, steps and benchmarks leave: nothing that a program would run or a reader believe."""
RECORDED = (f"/{paths.METRICS_FILE}", f"/{paths.TOKENS_FILE}")
"""Ends of the paths of what a training records."""
RUN_FIELDS = {
    "base", "outputs", "config", "fingerprint", "prompts", "seconds", "gpu_seconds", "joules",
}  # fmt: skip
"""What is read of a training's provenance."""


@dataclass(frozen=True)
class Layout:
    """What belongs to a study's results folder, by paths from there."""

    files: frozenset[str]
    models: frozenset[str]
    """Directories with weights in them, and with what belongs to weights."""

    def has(self, path: str) -> bool:
        """Return whether a path is one of the study's; never for one that leaves the folder.

        A model's directory holds safetensors, JSON, templates and checksums; a pickle there would be run
        by whoever loads it.
        """
        directory, _, name = path.rpartition("/")
        of_model = any(fnmatch(name, pattern) for pattern in (*FILES, SUMS))
        return path in self.files or path in ADDED or (directory in self.models and of_model)

    def of_another_form(self, path: str) -> bool:
        """Return whether another form of the study may have left a path: another method, another step."""
        kind, _, name = path.partition("/")
        return kind in KINDS and (path.endswith(f"/{SUMS}") or Path(name).suffix in SUFFIXES)

    def of_training(self, path: str) -> bool:
        """Return whether the provenance of a training must name a path."""
        recorded = path.startswith("runs/") and path.endswith(RECORDED)
        verifier = path.startswith("models/verifier/")
        other = path in ADDED or path in self.files or verifier
        return self.has(path) and (recorded or not other)

    def visible(self, folder: Path) -> dict[str, Path]:
        """Return the files of a folder by their paths, hidden ones and the checksums apart.

        Hidden are what Snakemake remembers and what a kill left half written; nothing reads them.
        """
        found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
        return {
            inside.as_posix(): path
            for inside, path in sorted(found.items())
            if not is_hidden(inside) and inside.as_posix() != SUMS
        }


def layout(study: Study) -> Layout:
    """Return what belongs to a study's results folder."""
    base = paths.RESULTS.format(study=study.name) + "/"
    models = [place_of(study, checkpoint) for checkpoint in study.checkpoints()]
    if study.evaluation.verifier:
        models.append(paths.VERIFIER.format(study=study.name).removeprefix(base))
    files = (path.removeprefix(base) for path in jobs_of(study).published())
    return Layout(frozenset(files), frozenset(models))


def place_of(study: Study, checkpoint: Checkpoint) -> str:
    """Return where the weights of a checkpoint are, from the study's folder."""
    base = paths.RESULTS.format(study=study.name) + "/"
    return paths.checkpoint_path(study.name, checkpoint).removeprefix(base)


def write_provenance(study: Study, root: Path = Path()) -> list[Path]:
    """Write `provenance.json` and `SHA256SUMS` of a finished study; return their paths.

    `sha256sum --check` reads the latter. Checksums of weights are those that the trainings took when they
    published them, so that weights which were swapped since do not pass. What an earlier form of the
    study left in the folder is not listed.

    Raises:
        RuntimeError: a training was made with other settings.
    """
    folder = root / paths.RESULTS.format(study=study.name)
    belongs = layout(study)
    known: dict[str, str] = {}
    for run in study.runs():
        record = read_run(study, root, run)
        if record["fingerprint"] != jobs_of(study).one("train", run).fingerprint:
            raise RuntimeError(
                f"{run.size} {run.method} seed {run.seed}: trained with other settings; run snakemake again"
            )
        known |= named_by(run, record)
    about, sums = (
        root / path.format(study=study.name) for path in (paths.PROVENANCE, paths.CHECKSUMS)
    )
    now = {"written": datetime.now(UTC).isoformat(timespec="seconds"), "environment": environment()}
    write_json(about, {**about_study(study, root), **now})
    lines = [
        f"{known.get(place) or file_sha256(path)}  {place}\n"
        for place, path in belongs.visible(folder).items()
        if belongs.has(place)
    ]
    with replace_file(sums) as stream:
        stream.writelines(lines)
    return [about, sums]


def named_by(run: TrainingRun, record: Mapping[str, Any]) -> dict[str, str]:
    """Return the files that the record of a training names, from the study's folder, with their checksums."""
    published = {f"runs/{run}/{path}": sha for path, sha in record["outputs"].items()}
    return published | {
        f"models/{run.size}/base/{path}": sha for path, sha in record["base"].items()
    }


def read_run(study: Study, root: Path, run: TrainingRun) -> dict[str, Any]:
    """Return what a training left of itself.

    Raises:
        DamagedFileError: it is truncated or corrupt, or says too little.
        OSError: it cannot be read.
    """
    path = root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
    found = read_json(path)
    if missing := RUN_FIELDS - found.keys():
        raise DamagedFileError(f"{path}: no {', '.join(sorted(missing))}; {AGAIN}")
    return found


def _sources(study: Study, root: Path) -> dict[str, Any]:
    """Return where the models came from, with the commit that a branch was at."""
    at = {size: paths.BASE_MODEL.format(study=study.name, size=size) for size in study.run.sizes}
    at["verifier"] = paths.VERIFIER.format(study=study.name)
    found = {name: root / place / SOURCE for name, place in at.items()}
    return {name: read_json(path) for name, path in found.items() if path.exists()}


def about_study(study: Study, root: Path) -> dict[str, Any]:
    """Return what follows from the study and what its trainings left: the same whenever it is asked."""
    runs = {run: read_run(study, root, run) for run in study.runs()}
    joules = [record["joules"] for record in runs.values()]
    return {
        "study": published_content(study),
        "models": _sources(study, root),
        "benchmarks": {n: study.task(n)["metadata"] for n in study.run.benchmarks},
        "base": {run.size: record["base"] for run, record in runs.items()},
        "prompts": next((record["prompts"] for record in runs.values()), None),
        "fingerprints": {
            str(checkpoint): _made_by(study, runs, checkpoint) for checkpoint in study.checkpoints()
        },
        "training_seconds": sum(record["seconds"] for record in runs.values()),
        "training_gpu_hours": sum(record["gpu_seconds"] for record in runs.values()) / 3600,
        # A run without a meter would make the sum a wrong number.
        "training_joules": None if None in joules else sum(joules),
    }


def _made_by(
    study: Study, runs: Mapping[TrainingRun, Mapping[str, Any]], checkpoint: Checkpoint
) -> str:
    """Return the fingerprint of the weights of a checkpoint, by what its training recorded."""
    if checkpoint.run is None:
        return of_checkpoint(jobs_of(study), checkpoint).fingerprint
    step = {"weights_of": f"step{checkpoint.step}"} if checkpoint.step is not None else {}
    return fingerprint({**runs[checkpoint.run]["config"], **step})
