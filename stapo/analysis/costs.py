"""What the trainings of a study cost, and from what code and on what machines they were made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.table import METHOD, SIZE, Column
from stapo.files import read_json

UNMEASURED = "unmeasured"
HOUR, KWH = 1 / 3600, 1 / 3_600_000
MADE = ("commit", "dirty", "processor", "gpus")
"""What is shown of the environment of a training; its `provenance.json` has all."""


@dataclass(frozen=True)
class Cost:
    """What one training cost."""

    size: str
    title: str
    seed: int
    record: Mapping[str, Any]
    """What the training recorded of itself; empty if it did not."""

    @property
    def made(self) -> dict[str, Any]:
        """Code and machine of the training."""
        found: Mapping[str, Any] = self.record.get("environment", {})
        return {name: found.get(name) for name in MADE}


def costs(artefacts: Artefacts) -> list[Cost]:
    """Return what each training cost."""
    study, found = artefacts.study, []
    for run in study.runs():
        path = artefacts.root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
        record = read_json(path) if path.exists() else {}
        found.append(Cost(run.size, study.method(run.method).title, run.seed, record))
    return found


def _measured(heading: str, field: str, form: str, unit: float = 1) -> Column[Cost]:
    return Column(heading, lambda cost: _number(form, cost.record.get(field), unit))


def _number(form: str, value: float | None, unit: float = 1) -> str:
    return UNMEASURED if value is None else format(unit * value, form)


COSTS: list[Column[Cost]] = [
    SIZE,
    METHOD,
    Column("Seed", lambda cost: cost.seed),
    _measured("Wall time [s]", "seconds", ",.0f"),
    _measured("GPU-hours", "gpu_seconds", ",.2f", HOUR),
    _measured("Energy [kWh]", "joules", ",.2f", KWH),
]


def total(found: Sequence[Cost]) -> str:
    """Return what all trainings cost together, as a sentence; unmeasured if a part is."""

    def together(name: str, unit: float) -> str:
        known = [one for cost in found if (one := cost.record.get(name)) is not None]
        return _number(",.2f", sum(known) if len(known) == len(found) else None, unit)

    return (
        f"All trainings together: {together('seconds', HOUR)} hours of wall time, "
        f"{together('gpu_seconds', HOUR)} GPU-hours, {together('joules', KWH)} kWh of the GPUs."
    )
