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
from io import BytesIO
from pathlib import Path
from typing import Any

from stapo.core.checksums import file_sha256, write_sums
from stapo.suite import paths, runners
from stapo.suite.cli import main
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs import STAGES
from stapo.suite.jobs.train import made_from as inputs_of, published, trained as directory_of
from stapo.suite.locks import work_directory
from stapo.suite.runners import train

STEPS = 8
FAIL, SLOW = Path("FAIL"), Path("SLOW")
"""Where they exist: the stage that fails, and the seconds of each step of a training."""


def made_from(job: Job) -> str:
    """Return a digest of everything that a job reads."""
    weights = [Path(path) for source in job.sources for path in source.weights]
    files = [*map(Path, job.inputs), *(p for at in weights for p in sorted(at.rglob("*")))]
    read = [file_sha256(path) for path in files if path.is_file()]
    return hashlib.sha256(repr((job.config, read)).encode()).hexdigest()


def write(path: Path, content: str | bytes) -> None:
    """Write a file atomically, slowly enough to be interrupted on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.aside")
    aside.write_bytes(content if isinstance(content, bytes) else content.encode())
    time.sleep(0.02)
    aside.replace(path)


def weights(place: Path, content: str) -> None:
    """Write a directory of weights."""
    shutil.rmtree(place, ignore_errors=True)
    write(place / "model.safetensors", content)
    write_sums(place)


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
        for path in map(Path, job.outputs):
            write(path, scores(of, job) if stage == "score" else text)
        for place in job.weights:
            weights(Path(place), made_from(job))
        if stage == "provenance":
            sums = "".join(f"{file_sha256(Path(path))}  {path}\n" for path in job.inputs)
            write(Path(paths.CHECKSUMS.format(study=of.study.name)), sums)


def scores(of: Jobs, job: Job) -> bytes:
    """Return a file with what a score file says of itself, which `status` reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stapo.suite.jobs.evaluate import cell

    about, file = {"stapo": json.dumps(cell(of, job))}, BytesIO()
    pq.write_table(pa.table({"made": [made_from(job)]}).replace_schema_metadata(about), file)
    return file.getvalue()


def weights_of(study: Any) -> list[str]:
    return ["model", *(f"step{step}" for step in study.kept_steps())]


def finished_at(study: Any, job: Job) -> Path | None:
    read = inputs_of(study, job)
    places = directory_of(job), published(job)
    found = (at for at in places if train.finished(at, job.fingerprint, weights_of(study), *read))
    return next(found, None)


def trained(study: Any, job: Job) -> None:
    """Count the steps of a training from the last one in its log, and write what a training writes."""
    out, stopped = directory_of(job), list[int]()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, lambda number, _: stopped.append(number))
    with work_directory(out.parent, job.config):
        log = out.parent / "metrics.jsonl"
        done = len(log.read_text().splitlines()) if log.exists() else 0
        for step in range(done + 1, STEPS + 1):
            time.sleep(float(SLOW.read_text()) if SLOW.exists() else 0.05)
            with log.open("a") as stream:
                stream.write(json.dumps({"step": step}) + "\n")
            if stopped:
                print(f"told to stop by {signal.Signals(stopped[0]).name}", flush=True)
                raise KeyboardInterrupt
            if step == STEPS // 2 and fails("train"):
                raise RuntimeError("made to fail")
        for name in weights_of(study):
            weights(out / name, made_from(job) + name)
        write(out / "metrics.jsonl", log.read_text())
        write(out / "tokens.parquet", made_from(job))
        files = [f"{name}/model.safetensors" for name in weights_of(study)]
        files += ["metrics.jsonl", "tokens.parquet"]
        base, prompts = inputs_of(study, job)
        record = {
            "fingerprint": job.fingerprint,
            "outputs": {name: file_sha256(out / name) for name in sorted(files)},
            "base": {"model.safetensors": file_sha256(base / "model.safetensors")},
            "prompts": file_sha256(prompts),
        }
        write(out / "provenance.json", json.dumps(record))


def fails(stage: str) -> bool:
    return FAIL.exists() and FAIL.read_text() == stage


if __name__ == "__main__":
    done = {name: partial(made, name) for name in STAGES if name not in ("train", "weights")}
    runner_of = runners.runner_of
    runners.runner_of = lambda stage: done.get(stage) or runner_of(stage)
    train._finished_at, train._train, train._launch = finished_at, trained, lambda *_: None
    sys.argv[0] = "stapo"
    main()
