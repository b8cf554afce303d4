"""What a study ran, on what, and what it cost, as the report shows it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import Scores
from stapo.analysis.rows import TableRow
from stapo.analysis.table import METHOD, SIZE, Column
from stapo.files import read_json
from stapo.study import Checkpoint, Study, TrainingRun
from stapo.study.sources import FileData, FolderModel, HubData, HubModel

UNMEASURED = "unmeasured"
PROFILES = {"smoke": "workflows/profiles/smoke"}
"""Name of a study with a profile of its own -> the profile, which names the study's file."""


@dataclass(frozen=True)
class Cost:
    """What one training cost."""

    size: str
    title: str
    seed: int
    started: str
    seconds: float | None
    gpu_hours: float | None
    joules: float | None
    phases: Mapping[str, float]
    """Phase of a step -> seconds in all steps."""


def _number(form: str, value: float | None) -> str:
    return UNMEASURED if value is None else format(value, form)


def _phase(name: str) -> Column[Cost]:
    return Column(f"{name.capitalize()} [s]", lambda cost: _number(",.0f", cost.phases.get(name)))


COSTS: list[Column[Cost]] = [
    SIZE,
    METHOD,
    Column("Seed", lambda cost: cost.seed),
    Column("Started (UTC)", lambda cost: cost.started, text=True),
    Column("Wall time [s]", lambda cost: _number(",.0f", cost.seconds)),
    *map(_phase, ("rollout", "update")),
    Column("GPU-hours", lambda cost: _number(",.2f", cost.gpu_hours)),
    Column(
        "Energy [kWh]", lambda cost: _number(",.2f", cost.joules and cost.joules / 3_600_000)
    ),
]  # fmt: skip


def records(artefacts: Artefacts) -> dict[TrainingRun, dict[str, Any]]:
    """Return what each training recorded of itself; empty where it did not.

    Raises:
        DamagedFileError: a record is truncated or corrupt.
    """
    name, root = artefacts.study.name, artefacts.root
    places = {
        run: root / paths.RUN_PROVENANCE.format(study=name, **run.wildcards)
        for run in artefacts.study.runs()
    }
    return {run: read_json(path) if path.exists() else {} for run, path in places.items()}


def costs(artefacts: Artefacts, found: Mapping[TrainingRun, Mapping[str, Any]]) -> list[Cost]:
    """Return what each training cost."""
    costs = []
    for run, record in found.items():
        gpu_seconds = _float(record.get("gpu_seconds"))
        phases: dict[str, float] = {}
        for step in artefacts.metrics(run):
            for phase, seconds in _mapping(step.get("seconds")).items():
                phases[phase] = phases.get(phase, 0.0) + (_float(seconds) or 0.0)
        costs.append(
            Cost(
                size=run.size,
                title=artefacts.study.method(run.method).title,
                seed=run.seed,
                started=(_started(record) or [UNMEASURED])[0],
                seconds=_float(record.get("seconds")),
                gpu_hours=None if gpu_seconds is None else gpu_seconds / 3600,
                joules=_float(record.get("joules")),
                phases=phases,
            )
        )
    return costs


def total(found: Sequence[Cost]) -> str:
    """Return what all trainings cost together, as a sentence."""
    seconds, hours, joules = (
        [getattr(cost, name) for cost in found] for name in ("seconds", "gpu_hours", "joules")
    )
    energy = _sum(joules, 1 / 3_600_000)
    return (
        f"All trainings together: {_number(',.2f', _sum(seconds, 1 / 3600))} hours of wall time, "
        f"{_number(',.2f', _sum(hours))} GPU-hours; energy of the GPUs: "
        + (UNMEASURED if energy is None else f"{energy:,.2f} kWh")
        + "."
    )


def _sum(values: Sequence[float | None], unit: float = 1.0) -> float | None:
    """Return the sum in another unit; None if a part is unknown."""
    known = [value for value in values if value is not None]
    return unit * sum(known) if len(known) == len(values) else None


def _float(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _started(record: Mapping[str, Any]) -> list[str]:
    """Return when the attempts of a training started, to the minute, in order."""
    attempts = record.get("attempts")
    found = attempts if isinstance(attempts, list) else []
    times = [_mapping(one).get("started") for one in found]
    return sorted(time[:16].replace("T", " ") for time in times if isinstance(time, str))


def setting(
    study: Study, scores: Scores, found: Mapping[TrainingRun, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Return label and text of each line of the setting of a study."""
    return [*_what(study), *_made(scores, found)]


def _template(model: HubModel | FolderModel) -> str:
    if model.chat_template is None:
        return ""
    raw = model.chat_template == "raw"
    return ", without chat template" if raw else ", chat template of the study"


def _what(study: Study) -> Iterator[tuple[str, str]]:
    training, run = study.training, study.run
    for size in run.sizes:
        model = study.models[size]
        if isinstance(model, HubModel):
            yield f"Base model, {size}", f"{model.hub} at {model.revision[:12]}{_template(model)}"
        elif isinstance(model, FolderModel):
            yield (
                f"Base model, {size}",
                f"{Path(model.path).name}, SHA-256 {str(model.sha256)[:12]}{_template(model)}",
            )
        else:
            layers = f"{model.layers} layers of width {model.hidden_size}"
            yield f"Base model, {size}", f"{model.builder}: {layers}, made by the study itself"
    data = study.data
    if isinstance(data, HubData):
        prompts = f"{data.hub} at {data.revision[:12]}"
    elif isinstance(data, FileData):
        prompts = f"{data.rows:,} rows of {Path(data.file).name}"
    else:
        prompts = f"{data.prompts:,} of {data.builder}"
    yield "Training prompts", prompts
    yield "Methods", ", ".join(study.method(name).title for name in run.methods)
    yield "Training seeds", ", ".join(map(str, run.seeds))
    warmup = "no warm-up"
    if training.warmup_steps:
        warmup = f"the first {training.warmup_steps:,} of them warm-up"
    yield "Steps", f"{training.steps:,} optimiser steps, {warmup}"
    yield "Learning rate", f"{training.learning_rate:g} (weight decay {training.weight_decay:g})"
    yield (
        "Batch",
        (
            f"{training.prompts_per_batch} prompts \u00d7 {training.group_size} responses per rollout, "
            f"mini-batches of {training.prompts_per_mini_batch} prompts"
        ),
    )
    yield (
        "Rollouts",
        (
            f"{training.rollouts}, temperature {training.temperature:g}, top-p {training.top_p:g}, "
            f"at most {training.max_response_tokens:,} tokens"
        ),
    )
    yield (
        "Benchmarks",
        ", ".join(f"{name} (N = {study.benchmarks[name].samples})" for name in run.benchmarks),
    )
    yield "Decodings", "; ".join(study.decodings[name].title for name in run.decodings)


def _made(
    scores: Scores, found: Mapping[TrainingRun, Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    started = sorted(time for record in found.values() for time in _started(record))
    dates = f"{started[0]} to {started[-1]} UTC" if started else UNMEASURED
    yield "Trainings started", dates
    trainings = [_mapping(record.get("environment")) for record in found.values()]
    yield "Code of the trainings", _join(map(_commit, trainings))
    yield "Code of the scores", _commit(scores.provenance)
    machines = [one for one in (*trainings, scores.provenance) if one]
    yield "Processor", _join(str(one.get("processor") or UNMEASURED) for one in machines)
    yield "GPUs", _join(map(_gpus, trainings))


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts)) or UNMEASURED


def _commit(environment: Mapping[str, Any]) -> str:
    commit = environment.get("commit")
    if not isinstance(commit, str) or not commit:
        return "commit not recorded"
    states = {"True": "with uncommitted changes (dirty)", "False": "without uncommitted changes"}
    state = states.get(str(environment.get("dirty")), "uncommitted changes not recorded")
    return f"commit {commit[:12]}, {state}"


def _gpus(environment: Mapping[str, Any]) -> str:
    names = environment.get("gpus")
    if not isinstance(names, list):
        return "not recorded"
    texts = [str(name) for name in names]
    counted = [f"{texts.count(name)} \u00d7 {name}" for name in dict.fromkeys(texts)]
    return ", ".join(counted) or "none"


def reruns(study: Study, scores: Scores, decoding: str) -> Callable[[TableRow], str]:
    """Return a function that returns the command that makes the scores of a row again."""

    def of(row: TableRow) -> str:
        checkpoints = [
            study.checkpoint(row.size, row.method, one.seed, one.selected)
            for one in scores.choices
            if (one.size, one.method) == (row.size, row.method)
        ]
        checkpoints = checkpoints or [Checkpoint(row.size)]
        return _command(study, decoding, checkpoints, study.run.benchmarks)

    return of


def _command(
    study: Study, decoding: str, checkpoints: Sequence[Checkpoint], benchmarks: Sequence[str]
) -> str:
    names = f"{{{','.join(benchmarks)}}}" if len(benchmarks) > 1 else benchmarks[0]
    files = [
        paths.SCORES.format(
            study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=names
        )
        for checkpoint in checkpoints
    ]
    # Files first: --configfile takes everything that follows it.
    own = PROFILES.get(study.name)
    profile = own or "workflows/profiles/workstation"
    command = f"snakemake {' '.join(files)} --workflow-profile {profile}"
    return command if own else f"{command} --configfile workflows/studies/{study.name}.yaml"
