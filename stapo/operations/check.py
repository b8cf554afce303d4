"""What a study would run, with the settings of its methods, and doubts about it: `stapo check`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.operations.status import table_of
from stapo.study import Study
from stapo.study.files import named
from stapo.study.sources import FileData, FolderModel

HEADINGS = (
    "method", "selection", "tau_p", "q", "scope", "clip", "dual clip", "KL", "aggregation", "statistics",
)  # fmt: skip
WIDTH = 160
"""Characters of the table, at least; a narrow terminal wraps its lines, which no column may be lost for."""


def check_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo check --json`."""
    points, curve = len(study.kept_steps()) - len(study.full_steps()), study.evaluation.curve
    found: dict[str, Any] = {
        "study": study.name,
        "trainings": [str(run) for run in study.runs()],
        "steps": study.training.steps,
        "checkpoints": [str(one) for one in study.checkpoints() if study.is_full(one)],
        "decodings": list(study.run.decodings),
        "responses": _responses(study, study.run.benchmarks),
        "curve": None,
        "methods": {name: asdict(study.method(name)) for name in study.run.methods},
        "own": list(own_lines(study)),
        "warnings": warnings(study),
    }
    if points and curve:
        responses = _responses(study, curve.benchmarks)
        found["curve"] = {
            "checkpoints": points, "decoding": curve.decoding, "responses": responses,
        }  # fmt: skip
    return found


def _responses(study: Study, benchmarks: list[str]) -> int:
    """Return how many responses a checkpoint gives to benchmarks under one decoding."""
    return sum(study.problems(name) * study.benchmarks[name].samples for name in benchmarks)


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


def warnings(study: Study) -> list[str]:
    """Return a line for each doubt about a valid study; `stapo verify` would report some as errors."""
    return study.unpinned()


def print_check(study: Study, console: Console) -> None:
    """Print what a study would run, the settings of its methods, and the doubts."""
    found = check_document(study)
    first = [
        f"{found['study']}: {len(found['trainings'])} trainings of {found['steps']} steps, "
        f"{len(found['checkpoints'])} checkpoints x {len(found['decodings'])} decodings, "
        f"{found['responses']} responses each"
    ]
    if curve := found["curve"]:
        first.append(
            f"curve: {curve['checkpoints']} more checkpoints of each training, "
            f"{curve['responses']} responses each at {curve['decoding']}"
        )
    last = [f"{name}: {one['title']}: {one['source']}" for name, one in found["methods"].items()]
    last += [*found["own"], *(f"warning: {line}" for line in found["warnings"])]
    table = table_of("", *HEADINGS)
    for row in method_rows(study):
        table.add_row(*map(Text, row))
    console.print(Text("\n".join(first)), soft_wrap=True)
    Console(file=console.file, width=max(WIDTH, console.width)).print(table)
    console.print(Text("\n".join(last)), soft_wrap=True)


def method_rows(study: Study) -> Iterator[tuple[str, ...]]:
    """Yield one row for each method of a study, in the order of `HEADINGS`; "-" if not applicable."""
    for name in study.run.methods:
        method, args = study.method(name), study.method(name).selection_args
        values = (
            name,
            named(method.selection),
            args.get("tau_p"),
            args.get("quantile", args.get("fraction")),
            args.get("scope", "mini-batch" if "fraction" in args else None),
            f"{method.clip_low:g} / {method.clip_high:g}",
            method.dual_clip,
            method.kl_coefficient or None,
            method.aggregation,
            None if method.reads == "none" else study.training_of(name).statistics,
        )
        yield tuple(f"{x:g}" if isinstance(x, float | int) else x or "-" for x in values)
