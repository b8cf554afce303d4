"""What the trainings of a study cost, and on what machines and from what code its results were made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.cells import Scores
from stapo.analysis.table import METHOD, SIZE, Column
from stapo.files import read_json
from stapo.study import Checkpoint, Study

UNMEASURED = "unmeasured"
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """What one training cost."""

    size: str
    title: str
    seed: int
    record: Record
    """What the training recorded of itself; empty if it did not."""
    phases: Mapping[str, float]
    """Phase of a step -> seconds in all steps."""


def costs(artefacts: Artefacts) -> list[Cost]:
    """Return what each training cost."""
    study, found = artefacts.study, []
    for run in study.runs():
        path = artefacts.root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
        record = read_json(path) if path.exists() else {}
        phases: dict[str, float] = {}
        for step in artefacts.metrics(run):
            for phase, seconds in step.get("seconds", {}).items():
                phases[phase] = phases.get(phase, 0.0) + seconds
        found.append(Cost(run.size, study.method(run.method).title, run.seed, record, phases))
    return found


def _number(form: str, value: float | None, unit: float = 1) -> str:
    return UNMEASURED if value is None else format(unit * value, form)


def _measured(heading: str, field: str, form: str, unit: float = 1) -> Column[Cost]:
    return Column(heading, lambda cost: _number(form, cost.record.get(field), unit))


def _phase(name: str) -> Column[Cost]:
    return Column(f"{name.capitalize()} [s]", lambda cost: _number(",.0f", cost.phases.get(name)))


HOUR, KWH = 1 / 3600, 1 / 3_600_000
COSTS: list[Column[Cost]] = [
    SIZE,
    METHOD,
    Column("Seed", lambda cost: cost.seed),
    Column("Started (UTC)", lambda cost: (_started(cost.record) or [UNMEASURED])[0], text=True),
    _measured("Wall time [s]", "seconds", ",.0f"),
    *map(_phase, ("rollout", "update")),
    _measured("GPU-hours", "gpu_seconds", ",.2f", HOUR),
    _measured("Energy [kWh]", "joules", ",.2f", KWH),
]


def total(found: Sequence[Cost]) -> str:
    """Return what all trainings cost together, as a sentence."""
    seconds, gpu_seconds, joules = (
        _sum([cost.record.get(name) for cost in found])
        for name in ("seconds", "gpu_seconds", "joules")
    )
    return (
        f"All trainings together: {_number(',.2f', seconds, HOUR)} hours of wall time, "
        f"{_number(',.2f', gpu_seconds, HOUR)} GPU-hours; energy of the GPUs: "
        f"{_number(',.2f', joules, KWH)}{' kWh' * (joules is not None)}."
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum; None if a part is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _started(record: Record) -> list[str]:
    """Return when the attempts of a training started, to the minute, in order."""
    return sorted(one["started"][:16].replace("T", " ") for one in record.get("attempts", ()))


def made(found: Iterable[Cost], scores: Scores) -> dict[str, str]:
    """Return label -> text of when, from what code and on what machines results were made."""
    trainings = [cost.record for cost in found]
    environments = [record.get("environment", {}) for record in trainings]
    started = sorted(time for record in trainings for time in _started(record))
    machines = [one for one in (*environments, scores.provenance) if one]
    return {
        "Trainings started": f"{started[0]} to {started[-1]} UTC" if started else UNMEASURED,
        "Code of the trainings": _join(map(_commit, environments)),
        "Code of the scores": _commit(scores.provenance),
        "Processor": _join(one.get("processor") or UNMEASURED for one in machines),
        "GPUs": _join(map(_gpus, environments)),
    }


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts)) or UNMEASURED


def _commit(environment: Record) -> str:
    if not (commit := environment.get("commit")):
        return "commit not recorded"
    states = {True: "with uncommitted changes (dirty)", False: "without uncommitted changes"}
    dirty = environment.get("dirty")
    state = "uncommitted changes not recorded" if dirty is None else states[dirty]
    return f"commit {commit[:12]}, {state}"


def _gpus(environment: Record) -> str:
    if (names := environment.get("gpus")) is None:
        return "not recorded"
    counted = (f"{names.count(name)} \u00d7 {name}" for name in dict.fromkeys(names))
    return ", ".join(counted) or "none"


def command(study: Study) -> str:
    """Return the command that makes the scores of one checkpoint again, as an example."""
    run, names = next(study.runs()), study.run.benchmarks
    path = paths.SCORES.format(
        study=study.name,
        checkpoint=Checkpoint(run.size, run.method, run.seed),
        decoding=study.run.decodings[0],
        benchmark=f"{{{','.join(names)}}}" if len(names) > 1 else names[0],
    )
    # Files first: --configfile takes everything that follows it.
    if study.name == "smoke":
        return f"snakemake {path} --workflow-profile workflows/profiles/smoke"
    profile = "--workflow-profile workflows/profiles/workstation"
    return f"snakemake {path} {profile} --configfile workflows/studies/{study.name}.yaml"
