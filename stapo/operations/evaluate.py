"""Any checkpoint through the pipeline's own evaluation, into the pipeline's own table.

A checkpoint outside a study becomes a study of one row without trainings: the same prompts, seeds, store,
grading and statistics, and what is there already is not generated again.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from rich.console import Console

from stapo import artifacts
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.tables import print_table, write_tables
from stapo.evaluation.generate import Benchmark, generate
from stapo.evaluation.scores import score
from stapo.models.base import HUB_FILES
from stapo.study import Study, StudyError, benchmark_definitions, parse_study

CHUNK = 2**20


def find_checkpoint(model: str) -> Path:
    """Return the directory of a local checkpoint, or of a Hub model after downloading it.

    Args:
        model: a directory, or `owner/name`, or `owner/name@revision`.

    Raises:
        StudyError: neither, or a checkpoint without safetensors.
    """
    path = Path(model)
    if not path.is_dir():
        hub, _, revision = model.partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
            raise StudyError([f"{model}: no directory, and no Hub model (owner/name@revision)"])
        path = Path(snapshot_download(hub, revision=revision or None, allow_patterns=HUB_FILES))
    if not any(path.glob("*.safetensors")):
        raise StudyError([f"{model}: has no *.safetensors, the only weight format read here"])
    return path


def checksum(checkpoint: Path) -> str:
    """Return 40 hex digits that stand for the files of a checkpoint."""
    digest = hashlib.sha256()
    for path in sorted(checkpoint.iterdir()):
        if path.suffix in (".safetensors", ".json", ".jinja", ".txt", ".model"):
            digest.update(path.name.encode())
            with path.open("rb") as stream:
                while part := stream.read(CHUNK):
                    digest.update(part)
    return digest.hexdigest()[:40]


def study_of(
    name: str,
    checkpoint: Path,
    benchmarks: list[str],
    decodings: list[str],
    evaluation: dict[str, Any],
) -> Study:
    """Return a study whose only row is a checkpoint.

    Args:
        name: of the row.
        checkpoint: directory; its files become part of the fingerprints.
        benchmarks: names; each with the N of its task.
        decodings: names of the catalogue.
        evaluation: as the section of a study.

    Raises:
        StudyError: unknown names or bad settings, all at once.
    """
    tasks = benchmark_definitions()
    training = {
        "steps": 1, "prompts_per_batch": 1, "prompts_per_mini_batch": 1, "group_size": 2,
        "micro_batch_tokens": 1, "learning_rate": 1.0, "max_prompt_tokens": 1, "max_response_tokens": 1,
    }  # fmt: skip
    raw = {
        "name": f"evaluate-{name}",
        "models": {name: {"hub": "outside/any-study", "revision": checksum(checkpoint)}},
        "data": {"builder": "tiny-arithmetic", "prompts": 1},
        "training": training,  # Asked for by the schema; nothing is trained.
        "benchmarks": {b: {"samples": tasks.get(b, {}).get("repeats", 1)} for b in benchmarks},
        "evaluation": evaluation,
        "run": {
            "sizes": [name],
            "methods": ["stapo"],
            "seeds": [0],
            "decodings": decodings,
            "benchmarks": benchmarks,
        },
    }
    study = parse_study(raw)
    return study.model_copy(update={"run": study.run.model_copy(update={"methods": []})})


def evaluate(
    model: str, benchmarks: list[str], decodings: list[str], evaluation: dict[str, Any]
) -> list[Path]:
    """Answer, grade and tabulate; return the paths of the tables.

    Args:
        model: as `find_checkpoint`.
        benchmarks: names.
        decodings: names of the catalogue.
        evaluation: backend, batch size, limit.
    """
    checkpoint = find_checkpoint(model)
    name = (
        re.sub(r"[^A-Za-z0-9.+-]+", "-", Path(model.partition("@")[0]).name).strip("-.") or "model"
    )
    study = study_of(name, checkpoint, benchmarks, decodings, evaluation)
    row, written, console = f"{name}/base", [], Console()
    for decoding in decodings:
        at: dict[str, Any] = {"study": study.name, "checkpoint": row, "decoding": decoding}
        asked = [
            Benchmark(
                b, study.benchmark_config(b), Path(artifacts.COMPLETIONS.format(**at, benchmark=b))
            )
            for b in benchmarks
        ]
        work = Path(artifacts.GENERATE_WORK.format(**at))
        config = study.generate_config(row, decoding)
        generate(checkpoint, config, study.decodings[decoding], study.evaluation, asked, work)
        for one in asked:
            identity = study.score_identity(row, decoding, one.name)
            score(one.output, identity, Path(artifacts.SCORES.format(**at, benchmark=one.name)))
        print_table(main_table(study, decoding, read_scores(study, decoding)), console)
        written += write_tables(study, decoding)
    return written
