"""What a study would run, with the settings of its methods, and doubts about it: `stapo check`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.study import Study
from stapo.study.code import named
from stapo.study.sources import FileData, FolderModel
from stapo.training.rewards import reward_doubt, reward_fault

HEADINGS = (
    "method", "selection", "tau_p", "q", "scope", "clip", "dual clip", "KL", "aggregation", "statistics",
)  # fmt: skip
WIDTH = 160
"""Characters of the table, at least; a narrow terminal wraps its lines, which no column may be lost for."""


def check_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo check --json`."""
    points, curve = len(study.kept_steps()) - len(study.full_steps()), study.evaluation.curve
    return {
        "study": study.name,
        "trainings": [str(run) for run in study.runs()],
        "steps": study.training.steps,
        "checkpoints": [str(one) for one in study.checkpoints() if study.is_full(one)],
        "decodings": list(study.run.decodings),
        "responses": _responses(study, study.evaluated()),
        "curve": {
            "checkpoints": points,
            "decoding": curve.decoding,
            "responses": _responses(study, curve.benchmarks),
        }
        if points and curve
        else None,
        "methods": {name: asdict(study.method(name)) for name in study.run.methods},
        "own": list(own_lines(study)),
        "warnings": warnings(study),
    }


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
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks[name]
        if own.file:
            yield f"benchmarks.{name}: {own.rows} problems in {own.file}; sha256: {own.sha256}"


def warnings(study: Study) -> list[str]:
    """Return a line for each doubt about a valid study; `stapo verify` would report some as errors."""
    faults = [reward_fault(study.training_of(name)) for name in study.run.methods[:1]]
    return [*study.unpinned(), *filter(None, [*faults, reward_doubt(study.training)])]


def print_check(study: Study, console: Console) -> None:
    """Print what a study would run, the settings of its methods, and the doubts."""
    found = check_document(study)
    lines = [
        f"{found['study']}: {len(found['trainings'])} trainings of {found['steps']} steps, "
        f"{len(found['checkpoints'])} checkpoints x {len(found['decodings'])} decodings, "
        f"{found['responses']} responses each"
    ]
    if curve := found["curve"]:
        lines.append(
            f"curve: {curve['checkpoints']} more checkpoints of each training, "
            f"{curve['responses']} responses each at {curve['decoding']}"
        )
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True)
    for row in method_rows(study):
        table.add_row(*map(Text, row))
    Console(file=console.file, width=max(WIDTH, console.width)).print(table)
    methods = {name: study.method(name) for name in study.run.methods}
    lines = [f"{name}: {one.title}: {one.source}" for name, one in methods.items()]
    lines += [*found["own"], *(f"warning: {line}" for line in found["warnings"])]
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def method_rows(study: Study) -> list[tuple[str, ...]]:
    """Return one row for each method of a study, in the order of `HEADINGS`; "-" if not applicable."""
    rows: list[tuple[str, ...]] = []
    for name in study.run.methods:
        method, training = study.method(name), study.training_of(name)
        args = method.selection_args
        rows.append(
            (
                name,
                named(method.selection),
                _shown(args.get("tau_p")),
                _shown(args.get("quantile", args.get("fraction"))),
                _shown(args.get("scope", "mini-batch" if "fraction" in args else None)),
                f"{method.clip_low:g} / {method.clip_high:g}",
                _shown(method.dual_clip),
                _shown(method.kl_coefficient or None),
                method.aggregation,
                training.statistics if method.reads != "none" else "-",
            )
        )
    return rows


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:g}"
