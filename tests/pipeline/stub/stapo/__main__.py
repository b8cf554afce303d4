"""Every stage of the pipeline in milliseconds: the same files, with digests of what they were made from.

A training counts its steps, writes each down, resumes, and can be stopped, killed or made to fail. Locks,
publishing, fingerprints and what Snakemake does with them are the package's own.
"""

import hashlib
import json
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.locks import join_jobs

STEPS, STEP_SECONDS = 8, 0.05
FAIL = Path("FAIL")
"""Names the command that fails, where it exists."""


def options(arguments: list[str]) -> dict[str, Any]:
    """Return options by name, and what stands before them under ''."""
    found: dict[str, Any] = {"": []}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name = word[2:]
            found[name] = True
        elif name and found[name] is True:
            found[name] = word
        else:
            found[""].append(word)
    return found


def digest(*parts: Any) -> str:
    """Return a digest of texts and of the contents of files and directories."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path) and part.is_dir():
            part = [digest(p) for p in sorted(part.rglob("*")) if p.is_file()]
        state.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
    return state.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a file atomically, slowly enough to be interrupted on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.aside")
    aside.write_text(text)
    time.sleep(0.02)
    aside.replace(path)


def directory(path: Path, content: str) -> None:
    """Write a directory of weights."""
    shutil.rmtree(path, ignore_errors=True)
    write(path / "model.safetensors", content)


def train(o: dict[str, Any]) -> None:
    from stapo.canonical import fingerprint
    from stapo.locks import work_directory
    from stapo.study import TrainingRun, identity
    from stapo.study.resolved import read_resolved
    from stapo.training.publish import finished

    study = read_resolved(Path(o["study"]))
    config = identity.train_config(study, TrainingRun(o["size"], o["method"], int(o["seed"])))
    work, out, metrics = Path(o["work"]), Path(o["out"]), Path(o["metrics"])
    print("configuration", fingerprint(config), flush=True)
    steps = {f"step{step}" for step in study.kept_steps()}
    made_from = Path(o["base"]), Path(o["prompts"])
    if finished(out.parent, fingerprint(config), ["model", *steps], *made_from):
        return
    stopped: list[int] = []
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopped.append(1))
    with work_directory(work, config):
        log = work / "metrics.jsonl"
        done = len(log.read_text().splitlines()) if log.exists() else 0
        for step in range(done + 1, STEPS + 1):
            time.sleep(STEP_SECONDS)
            with log.open("a") as stream:
                seconds = {"update": STEP_SECONDS, "rollout": 0.0}
                stream.write(json.dumps({"step": step, "seconds": seconds}) + "\n")
            if stopped:
                print("stapo: stopped; the same command continues", file=sys.stderr, flush=True)
                sys.exit(130)
            if step == STEPS // 2 and fails("train"):
                raise RuntimeError("stapo: made to fail")
        made = digest(config, Path(o["base"]), Path(o["prompts"]))
        for name in ("model", *steps):
            directory(out.with_name(name), made + name)
        write(metrics, log.read_text())
        write(metrics.with_name("tokens.parquet"), made)
        files = [f"{name}/model.safetensors" for name in ("model", *steps)]
        files += ["metrics.jsonl", "tokens.parquet"]
        outputs = {
            f: hashlib.sha256((out.parent / f).read_bytes()).hexdigest() for f in sorted(files)
        }
        record = {"fingerprint": fingerprint(config), "outputs": outputs}
        base, prompts = made_from[0] / "model.safetensors", made_from[1]
        record["base"] = {base.name: hashlib.sha256(base.read_bytes()).hexdigest()}
        record["prompts"] = hashlib.sha256(prompts.read_bytes()).hexdigest()
        write(out.with_name("provenance.json"), json.dumps(record))


def generate(o: dict[str, Any]) -> None:
    from stapo.canonical import fingerprint
    from stapo.locks import work_directory
    from stapo.study import Checkpoint, identity
    from stapo.study.resolved import read_resolved

    study = read_resolved(Path(o["study"]))
    checkpoint = Checkpoint.parse(o["checkpoint"])
    config = identity.generate_config(study, checkpoint, o["decoding"])
    print("configuration", fingerprint(config), flush=True)
    with work_directory(Path(o["work"]), {"kind": "responses"}):
        for name in study.answered(checkpoint, o["decoding"]):
            write(Path(o["out"]) / f"{name}.jsonl", digest(config, name, Path(o["model"])) + "\n")


def score(o: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stapo.study import Checkpoint, identity
    from stapo.study.resolved import read_resolved

    study = read_resolved(Path(o["study"]))
    cell = Checkpoint.parse(o["checkpoint"]), o["decoding"], o["benchmark"]
    about = identity.score_identity(study, *cell)
    print("configuration", about["fingerprint"], flush=True)
    table = pa.table({"made": [digest(Path(o["completions"]))]})
    out = Path(o["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table.replace_schema_metadata({"stapo": json.dumps(about)}),
        out.with_name(f".{out.name}.aside"),
    )
    out.with_name(f".{out.name}.aside").replace(out)


def intervene(o: dict[str, Any]) -> None:
    from stapo import paths
    from stapo.study import Checkpoint, identity
    from stapo.study.resolved import read_resolved

    study, checkpoint = read_resolved(Path(o["study"])), Checkpoint.parse(o["checkpoint"])
    made_by = identity.intervention_fingerprint(study, checkpoint)
    print("configuration", made_by, flush=True)
    made = digest(made_by, Path(o["model"]), Path(o["prompts"]))
    for suffix in paths.INTERVENTION_SUFFIXES:
        record = {"fingerprint": made_by, "made": made}
        write(Path(o["out"]) / f"{checkpoint}.{suffix}", json.dumps(record))


def show(o: dict[str, Any], command: str) -> None:
    from stapo import paths
    from stapo.exhibits import FIGURES, TABLES
    from stapo.study import identity
    from stapo.study.resolved import read_resolved

    study = read_resolved(Path(o["study"]))
    if command == "evidence":
        made = digest(*map(Path, paths.exhibit_sources(study, TABLES[o["name"]])))
        for suffix in paths.SUFFIXES:
            write(Path(paths.TABLE.format(study=study.name, table=o["name"], suffix=suffix)), made)
    elif command == "figure":
        made = digest(*map(Path, paths.exhibit_sources(study, FIGURES[o["name"]])))
        for suffix in paths.FIGURE_SUFFIXES:
            write(
                Path(paths.FIGURE.format(study=study.name, figure=o["name"], suffix=suffix)),
                made,
            )
    elif command == "table":
        scores = paths.table_score_paths(study, o["decoding"])
        made_by = identity.table_fingerprint(study, o["decoding"])
        text = f"{digest(*map(Path, scores))}\nConfiguration {made_by}.\n"
        for suffix in paths.SUFFIXES:
            at = {"study": study.name, "decoding": o["decoding"], "suffix": suffix}
            write(Path(paths.MAIN_TABLE.format(**at)), text)
    elif command == "report":
        shown = [
            *paths.table_paths(study),
            *paths.figure_paths(study),
            *paths.evidence_paths(study),
        ]
        text = "".join(Path(path).read_text() for path in shown)
        made_by = f"Configuration {identity.report_fingerprint(study)}."
        write(Path(paths.REPORT.format(study=study.name)), f"{text}\n{made_by}\n")
    else:
        files = [p for p in paths.published_paths(study) if not p.endswith("/provenance.json")]
        sums = "".join(f"{digest(Path(path))}  {path}\n" for path in files)
        write(Path(paths.PROVENANCE.format(study=study.name)), digest(sums))
        write(Path(paths.CHECKSUMS.format(study=study.name)), sums)


def values(o: dict[str, Any]) -> None:
    from stapo import paths
    from stapo.study.resolved import read_resolved

    study = read_resolved(Path(o["study"]))
    made = digest(*map(Path, paths.score_paths(study, study.run.decodings)))
    for path in paths.value_paths(study):
        write(Path(path), made)


def fails(command: str) -> bool:
    return FAIL.exists() and FAIL.read_text() == command


def main() -> None:
    from stapo.study.resolved import read_resolved

    join_jobs()
    command, o = sys.argv[1], options(sys.argv[2:])
    if command != "train" and fails(command):
        raise RuntimeError("stapo: made to fail")
    if command == "prompts":
        made = digest(read_resolved(Path(o["study"])).data.model_dump())
        write(Path(o["out"]), made + "\n")
        write(Path(o["record"]), json.dumps(made))
    elif command == "overlap":
        write(Path(o["out"]), json.dumps(digest(Path(o["prompts"]))))
    elif command == "base":
        config = read_resolved(Path(o["study"])).models[o["size"]].model_dump()
        directory(Path(o["out"]), digest(config))
        write(Path(o["record"]), json.dumps(config))
    elif command == "publish":
        from stapo.training.publish import publish

        publish(Path(o["trained"]), Path(o["out"]), o[""])
    elif command in (jobs := {f.__name__: f for f in (train, generate, score, intervene, values)}):
        jobs[command](o)
    elif command == "references":
        study = read_resolved(Path(o["study"])).name
        write(Path(f"results/{study}/references.bib"), digest(study))
    else:
        show(o, command)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
        sys.exit(0)
    sys.exit(130)
