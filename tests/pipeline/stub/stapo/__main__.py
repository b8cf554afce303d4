"""The `stapo` program with stages of milliseconds: files with digests of what they were made from.

A training counts its steps, writes each down, resumes, and can be stopped, killed or made to fail. Command
line, locks, publishing, fingerprints and what Snakemake does with them are the package's own.
"""

import hashlib
import json
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from stapo import paths, stages
from stapo.cli import main
from stapo.locks import work_directory
from stapo.stages import Job, Jobs, train

STEPS, STEP_SECONDS = 8, 0.05
FAIL = Path("FAIL")
"""Names the stage that fails, where it exists."""


def digest(*parts: Any) -> str:
    """Return a digest of values and of the contents of files and directories."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path) and part.is_dir():
            part = [digest(p) for p in sorted(part.rglob("*")) if p.is_file()]
        state.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
    return state.hexdigest()


def write(path: str | Path, text: str) -> None:
    """Write a file atomically, slowly enough to be interrupted on the way."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.aside")
    aside.write_text(text)
    time.sleep(0.02)
    aside.replace(path)


def directory(path: str | Path, content: str) -> None:
    """Write a directory of weights."""
    shutil.rmtree(path, ignore_errors=True)
    write(Path(path) / "model.safetensors", content)


def made_from(job: Job) -> str:
    """Return a digest of everything that a job reads."""
    weights = [Path(path) for source in job.sources for path in source.weights]
    return digest(job.config, *map(Path, job.inputs), *weights)


def made(stage: str, of: Jobs, jobs: list[Job], how: Any) -> None:
    """Do the work of some jobs of a stage."""
    if fails(stage):
        raise RuntimeError("made to fail")
    for job in jobs:
        text = f"{made_from(job)}\nConfiguration {job.fingerprint}.\n"
        if stage in ("prompts", "intervene", "overlap"):
            text = json.dumps({"made": text, "fingerprint": job.fingerprint}) + "\n"
        if stage == "base":
            text = json.dumps(job.settings["model"])
        for path in job.outputs:
            if stage == "score":
                score(of, job, Path(path))
            else:
                write(path, text)
        for place in job.weights:
            directory(place, made_from(job))
        if stage == "provenance":
            sums = "".join(f"{digest(Path(p))}  {p}\n" for p in job.inputs)
            write(paths.CHECKSUMS.format(study=of.study.name), sums)


def score(of: Jobs, job: Job, out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stapo.stages.score import cell

    about = {"stapo": json.dumps(cell(of, job))}
    table = pa.table({"made": [made_from(job)]}).replace_schema_metadata(about)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.aside")
    pq.write_table(table, aside)
    aside.replace(out)


def is_finished(study: Any, job: Job, how: Any) -> bool:
    from stapo.training.publish import finished

    weights = ["model", *(f"step{step}" for step in study.kept_steps())]
    at = {"study": study.name, "size": train.run_of(job).size}
    base, prompts = Path(paths.BASE_MODEL.format(**at)), Path(paths.PROMPTS.format(**at))
    return finished(train.trained(job), job.fingerprint, weights, base, prompts)


def trained(study: Any, job: Job) -> None:
    out = train.trained(job)
    stopped: list[int] = []
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopped.append(1))
    with work_directory(out.parent, job.config):
        log = out.parent / "metrics.jsonl"
        done = len(log.read_text().splitlines()) if log.exists() else 0
        for step in range(done + 1, STEPS + 1):
            time.sleep(STEP_SECONDS)
            with log.open("a") as stream:
                seconds = {"update": STEP_SECONDS, "rollout": 0.0}
                stream.write(json.dumps({"step": step, "seconds": seconds}) + "\n")
            if stopped:
                raise KeyboardInterrupt
            if step == STEPS // 2 and fails("train"):
                raise RuntimeError("made to fail")
        content = made_from(job)
        names = ("model", *(f"step{step}" for step in study.kept_steps()))
        for name in names:
            directory(out / name, content + name)
        write(out / "metrics.jsonl", log.read_text())
        write(out / "tokens.parquet", content)
        files = [f"{name}/model.safetensors" for name in names]
        files += ["metrics.jsonl", "tokens.parquet"]
        at = {"study": study.name, "size": train.run_of(job).size}
        base = Path(paths.BASE_MODEL.format(**at)) / "model.safetensors"
        record = {
            "fingerprint": job.fingerprint,
            "outputs": {f: sha256(out / f) for f in sorted(files)},
            "base": {base.name: sha256(base)},
            "prompts": sha256(Path(paths.PROMPTS.format(**at))),
        }
        write(out / "provenance.json", json.dumps(record))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fails(stage: str) -> bool:
    return FAIL.exists() and FAIL.read_text() == stage


if __name__ == "__main__":
    for name in stages.stages():
        if name not in ("train", "weights"):
            stages.module(name).run = partial(made, name)
    train._is_finished, train._train = is_finished, trained
    sys.argv[0] = "stapo"
    main()
