"""What a study would run, with the settings of its methods, and doubts about it: `stapo check`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.files import leaves
from stapo.study import Study
from stapo.study.sources import FileData, FolderModel

NO_SETTINGS = ("title", "source", "bibtex", "revision")
"""What describes a method and does not determine it."""


def check_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo check --json`."""
    benchmarks = study.run.benchmarks
    return {
        "study": study.name,
        "trainings": [str(run) for run in study.runs()],
        "steps": study.training.steps,
        "checkpoints": [str(one) for one in study.checkpoints() if study.is_full(one)],
        "decodings": list(study.run.decodings),
        "responses": sum(study.problems(b) * study.benchmarks[b].samples for b in benchmarks),
        "methods": {name: asdict(study.method(name)) for name in study.run.methods},
        "own": list(own_lines(study)),
        # Of a valid study; `stapo verify` would report some as errors.
        "warnings": study.unpinned(),
    }


def own_lines(study: Study) -> Iterator[str]:
    """Yield a line for each file of the study's own, with the checksum that pins its content."""
    for size in study.run.sizes:
        model = study.models[size]
        if isinstance(model, FolderModel):
            yield f"models.{size}: {model.path}; sha256: {model.sha256}"
    for method in map(study.method, study.run.methods):
        if method.is_own:
            yield f"{method.title}: runs {method.selection}; sha256: {method.selection_sha256}"
    if ":" in study.training.reward:
        checksum = study.training.reward_sha256
        yield f"training.reward: runs {study.training.reward}; sha256: {checksum}"
    data = study.data
    if isinstance(data, FileData):
        yield f"data: {data.rows} rows in {data.file}; sha256: {data.sha256}"
    for name in dict.fromkeys(study.run.benchmarks):
        own = study.benchmarks[name]
        if own.file:
            yield f"benchmarks.{name}: {own.rows} problems in {own.file}; sha256: {own.sha256}"


def print_check(study: Study, console: Console) -> None:
    """Print what a study would run, the settings of its methods, and the doubts."""
    found = check_document(study)
    lines = [
        f"{found['study']}: {len(found['trainings'])} trainings of {found['steps']} steps, "
        f"{len(found['checkpoints'])} checkpoints x {len(found['decodings'])} decodings, "
        f"{found['responses']} responses each"
    ]
    for name, one in found["methods"].items():
        about = {key: value for key, value in leaves(one).items() if key not in NO_SETTINGS}
        given = [f"{key} {value}" for key, value in about.items() if value not in (None, "", {})]
        lines += [f"{name}: {one['title']}: {one['source']}", f"  {', '.join(given)}"]
    lines += [*found["own"], *(f"warning: {line}" for line in found["warnings"])]
    console.print(Text("\n".join(lines)), soft_wrap=True)
