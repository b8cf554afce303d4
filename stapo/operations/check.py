"""What a study would run, and doubts about it: the content of `stapo check`."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.operations.methods_table import print_methods
from stapo.operations.own import own_lines
from stapo.study import Study
from stapo.study.titles import title_faults
from stapo.training.rewards import reward_doubt, reward_fault

REMEDY = "choose another name or title; `stapo verify` rejects this one"


def check_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo check --json`."""
    return {
        "study": study.name,
        "trainings": [str(run) for run in study.runs()],
        "steps": study.training.steps,
        "checkpoints": [str(one) for one in study.checkpoints() if study.is_full(one)],
        "decodings": list(study.run.decodings),
        "responses": _responses(study, study.evaluated()),
        "curve": _curve(study),
        "methods": {name: asdict(study.method(name)) for name in study.run.methods},
        "own": list(own_lines(study)),
        "warnings": warnings(study),
    }


def _curve(study: Study) -> dict[str, Any] | None:
    """Return what is evaluated for the accuracy figure alone, None without it."""
    points, curve = len(study.kept_steps()) - len(study.full_steps()), study.evaluation.curve
    if not points or curve is None:
        return None
    each = _responses(study, curve.benchmarks)
    return {"checkpoints": points, "decoding": curve.decoding, "responses": each}


def warnings(study: Study) -> list[str]:
    """Return a line for each doubt about a valid study; `stapo verify` would report some as errors."""
    titles = [f"{line}; {REMEDY}" for line in title_faults(study)]
    fault = reward_fault(study.job_training(study.run.methods[0]))
    rewards = filter(None, [fault, reward_doubt(study.training)])
    return [*study.unpinned(), *titles, *rewards]


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
    print_methods(study, console)
    for line in found["own"]:
        console.print(Text(line), soft_wrap=True)
    for line in found["warnings"]:
        console.print(Text(f"warning: {line}"), soft_wrap=True)


def _responses(study: Study, benchmarks: list[str]) -> int:
    """Return how many responses a checkpoint gives to benchmarks under one decoding."""
    return sum(study.problems(name) * study.benchmarks[name].samples for name in benchmarks)
