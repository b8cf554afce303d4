"""Evaluation of any checkpoints: a study of base models without trainings, and its stages in one command.

Each checkpoint is a size of the study, which is written beside its results: prompts, seeds, stored responses,
grading and statistics are those of the pipeline, and a second run generates only what is missing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from stapo import paths
from stapo.files import fingerprint, replace_file, text_of
from stapo.stages import Resources, run
from stapo.study import StudyError, read_study
from stapo.tasks import benchmark_definitions

HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:@(.+))?")
PLACE = re.compile(r"(?:.*/)?([^/]+)/(?:runs|models)/(.+?)(?:/model)?")
"""Of the weights of a study: its name, and theirs."""
STAGES = ("base", "generate", "score")


def evaluate(
    models: Sequence[str],
    benchmarks: Sequence[str],
    decodings: Sequence[str],
    evaluation: dict[str, Any],
    samples: int | None = None,
    name: str | None = None,
) -> list[Path]:
    """Generate responses, grade them and write tables; return the paths of the study and of the tables.

    Args:
        models: directories of weights or Hub models (`owner/name@revision`), each with or without `LABEL=`.
        benchmarks: names in `benchmarks/`.
        decodings: names in the catalogue.
        evaluation: section of a study.
        samples: responses to each problem; None: those of the benchmark.
        name: of the study; None: one that contains a fingerprint of what is asked.

    Raises:
        StudyError: every error in the input.
    """
    found, errors = checkpoints(models)
    repeats = {one: task["repeats"] for one, task in benchmark_definitions().items()}
    raw: dict[str, Any] = {
        "models": found,
        "benchmarks": {one: {"samples": samples or repeats.get(one, 1)} for one in benchmarks},
        "evaluation": evaluation,
        "run": {
            "sizes": [*found], "methods": [], "seeds": [0],
            "decodings": [*decodings], "benchmarks": [*benchmarks],
        },
    }  # fmt: skip
    raw = {"name": name or f"evaluate-{fingerprint(raw)[:8]}", **raw}
    try:
        study = read_study(changes=raw)
    except StudyError as error:
        raise StudyError([*errors, *error.errors]) from error
    if errors:
        raise StudyError(errors)
    results = Path(paths.RESULTS.format(study=study.name))
    file, text = results / "study.yaml", yaml.safe_dump(raw, sort_keys=False)
    if results.exists() and text_of(file) != text:
        about = "has other results; choose another --name, or remove it"
        raise StudyError([f"{results}: {about}"])
    with replace_file(file) as stream:
        stream.write(text)
    for stage in STAGES:
        run(study, stage, "", Resources())
    from stapo.analysis.main_tables import print_table, tables_of, write_tables
    from stapo.analysis.values import write_values

    for table in tables_of(study):
        print_table(table, Console())
    written = [write_tables(study, decoding) for decoding in study.run.decodings]
    return [file, *written, write_values(study)]


def checkpoints(texts: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the section `models` of a study for what the user names, and a line for each error."""
    found: list[tuple[str, dict[str, Any]]] = []
    errors = []
    for text in texts:
        label, equals, what = text.partition("=")
        if not equals or Path(text).is_dir():
            label, what = "", text
        if Path(what).is_dir():
            path = Path(what).resolve()
            place = PLACE.fullmatch(path.as_posix())
            own = "-".join(place.groups()) if place else path.name
            found.append((_slug(label or own), {"path": str(path)}))
        elif hub := HUB.fullmatch(what):
            model = {"hub": hub[1], "revision": hub[2] or "main"}
            found.append((_slug(label or hub[1]), model))
        else:
            errors.append(f"{what}: neither a directory nor a Hub model (owner/name@revision)")
    counts = Counter(name for name, _ in found)
    errors += [
        f"{name}: the name of {count} checkpoints; give them labels: LABEL=WHAT"
        for name, count in counts.items()
        if count > 1
    ]
    return dict(found), errors


def _slug(text: str) -> str:
    """Return a text as a name of a size."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.+") or "model"
