"""Evaluation of any checkpoint with the pipeline's code and tables.

The checkpoint becomes the only row of a study without trainings: prompts, seeds, stored responses, grading
and statistics are those of the pipeline, and existing responses are not generated again. The results
folder is named by the checkpoint and by everything that determines the table, so that no evaluation
overwrites another.
"""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from rich.console import Console

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.rows import TableRow
from stapo.analysis.tables import print_table, write_table
from stapo.canonical import canonical
from stapo.evaluation.generate import Benchmark, generate
from stapo.evaluation.scores import score
from stapo.methods import METHODS
from stapo.models.base import HUB_FILES
from stapo.provenance import file_sha256
from stapo.study import Checkpoint, Study, StudyError, parse_study
from stapo.study.identity import (
    benchmark_config,
    generate_config,
    score_identity,
    tables_fingerprint,
)
from stapo.tasks import benchmark_definitions

SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""Suffixes of the files of a checkpoint."""
RUN = re.compile(r".*?([^/]+)/runs/([^/]+)/([^/]+)/seed(\d+)/(?:model|step(\d+))")
BASE = re.compile(r".*/results/([^/]+)/models/([^/]+)/base")
DIGITS, LONGEST_NAME, LONGEST_TITLE = 8, 80, 60


@dataclass(frozen=True)
class FoundModel:
    """A directory of weights, with its identity."""

    path: Path
    checksum: str
    """Checksum of its files, 40 hex digits."""
    name: str
    """Name for directories; all characters except letters, digits, `.`, `+` and `-` are replaced."""
    size: str
    """Size in the study that trained it; empty if unknown."""
    method: str
    title: str
    """Title of its table row."""


def find_checkpoint(model: str) -> Path:
    """Return the directory of a local checkpoint, or of a Hub model after downloading it.

    Args:
        model: a directory, or `owner/name`, or `owner/name@revision`.

    Raises:
        StudyError: it is neither of them, or has no safetensors.
    """
    path = Path(model)
    if not path.is_dir():
        hub, _, revision = model.partition("@")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
            raise StudyError(
                [f"{model}: neither a directory nor a Hub model (owner/name@revision)"]
            )
        path = Path(snapshot_download(hub, revision=revision or None, allow_patterns=HUB_FILES))
    if not any(path.glob("*.safetensors")):
        raise StudyError([f"{model}: no *.safetensors, the only supported format of weights"])
    return path


def checkpoint(model: str) -> FoundModel:
    """Return the checkpoint that `find_checkpoint` finds, with its identity.

    A published checkpoint of a study is recognised by its path and by the checksums that its training
    recorded; every other checkpoint is named after `model`.
    """
    path = find_checkpoint(model)
    files = {f.name: file_sha256(f) for f in sorted(path.iterdir()) if f.suffix in SUFFIXES}
    checksum = hashlib.sha256(canonical(files).encode()).hexdigest()[:40]
    place = path.resolve().as_posix()
    if found := RUN.fullmatch(place):
        study, size, method, seed, step = found.groups()
        if _recorded(path) == files:
            name = f"{study}-{size}-{method}-seed{seed}" + (f"-step{step}" if step else "")
            known = METHODS[method].title if method in METHODS else method
            title = f"{known}, seed {seed}" + (f", step {step}" if step else "")
            return FoundModel(path, checksum, _slug(name), size, method, title)
    if found := BASE.fullmatch(place):
        study, size = found.groups()
        return FoundModel(path, checksum, _slug(f"{study}-{size}-base"), size, "base", "Base")
    given = Path(model).name if Path(model).is_dir() else model.partition("@")[0]
    name = _slug(given or path.resolve().name)
    return FoundModel(path, checksum, name, "", name, model[-LONGEST_TITLE:])


def _recorded(path: Path) -> dict[str, str]:
    """Return the checksums of a checkpoint that its training recorded; empty without a record."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        outputs = json.loads((path.parent / "provenance.json").read_text())["outputs"]
        start = f"{path.resolve().name}/"
        named = {
            key.removeprefix(start): sha for key, sha in outputs.items() if key.startswith(start)
        }
        return {name: sha for name, sha in named.items() if Path(name).suffix in SUFFIXES}
    return {}


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.+")[-LONGEST_NAME:] or "model"


def study_of(
    found: FoundModel, benchmarks: list[str], decodings: list[str], evaluation: dict[str, Any]
) -> Study:
    """Return a study whose only row is a checkpoint.

    Args:
        found: the checkpoint; the checksum of its files becomes part of the fingerprints.
        benchmarks: names; each is sampled with the N of its task.
        decodings: names in the catalogue.
        evaluation: settings as in the section `evaluation` of a study.

    Raises:
        StudyError: unknown names or bad settings, all at once.
    """
    tasks = benchmark_definitions()
    training = {
        "steps": 1, "prompts_per_batch": 1, "prompts_per_mini_batch": 1, "group_size": 2,
        "micro_batch_tokens": 1, "learning_rate": 1.0, "max_prompt_tokens": 1, "max_response_tokens": 1,
    }  # fmt: skip
    raw = {
        "name": f"evaluate-{found.name}",
        "models": {found.name: {"hub": "outside/any-study", "revision": found.checksum}},
        "data": {"builder": "tiny-arithmetic", "prompts": 1},
        "training": training,  # Required by the schema; nothing is trained.
        "benchmarks": {b: {"samples": tasks.get(b, {}).get("repeats", 1)} for b in benchmarks},
        "evaluation": evaluation,
        "run": {
            "sizes": [found.name],
            "methods": ["stapo"],
            "seeds": [0],
            "decodings": decodings,
            "benchmarks": benchmarks,
        },
    }
    study = parse_study(raw)
    study = study.model_copy(update={"run": study.run.model_copy(update={"methods": []})})
    shown = tables_fingerprint(study)
    return study.model_copy(update={"name": f"{study.name}-{shown[:DIGITS]}"})


def _labelled(row: TableRow, found: FoundModel) -> TableRow:
    return replace(row, size=found.size, method=found.method, title=found.title)


def evaluate(
    model: str, benchmarks: list[str], decodings: list[str], evaluation: dict[str, Any]
) -> list[Path]:
    """Generate responses, grade them and write tables; return the paths of the tables.

    Args:
        model: as for `find_checkpoint`.
        benchmarks: names of benchmarks.
        decodings: names in the catalogue.
        evaluation: backend, batch size and limits.
    """
    found = checkpoint(model)
    study = study_of(found, benchmarks, decodings, evaluation)
    row, written, console = Checkpoint(found.name), [], Console()
    for decoding in decodings:
        at: dict[str, Any] = {"study": study.name, "checkpoint": row, "decoding": decoding}
        asked = [
            Benchmark(
                b, benchmark_config(study, b), Path(paths.COMPLETIONS.format(**at, benchmark=b))
            )
            for b in benchmarks
        ]
        # One store per checkpoint: a further evaluation generates only missing responses.
        store = f"evaluate-{found.name}-{found.checksum[:DIGITS]}"
        work = Path(paths.GENERATE_WORK.format(**{**at, "study": store}))
        config = generate_config(study, row, decoding)
        how, ends = (study.decodings[decoding], study.evaluation), study.end_tokens
        generate(found.path, config, *how, asked, work, end_tokens=ends)
        for one in asked:
            identity = score_identity(study, row, decoding, one.name)
            score(one.output, identity, Path(paths.SCORES.format(**at, benchmark=one.name)))
        table = main_table(study, decoding, read_scores(study, decoding))
        table = replace(table, rows=[_labelled(line, found) for line in table.rows])
        print_table(table, console)
        written += write_table(table)
    return written
