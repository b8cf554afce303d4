"""Whether the commands that the trainings recorded are of the study that is published.

A command carries the whole study as it was when the training started. What it named and the folder does not
show was left out afterwards: with results at hand, that is a choice among them.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stapo.canonical import fingerprint
from stapo.publication import untrusted
from stapo.publication.results import MAX_STEPS, Results
from stapo.study import Study, StudyError, parse_study

LISTS = ("sizes", "methods", "seeds", "decodings", "benchmarks")
SILENT = ("engine", "run")
"""Of a study: what determines no result, and what is looked at by itself."""


def command_faults(
    study: Study, run: tuple[str, str, int], command: list[str], last: bool
) -> Iterator[str]:
    """Yield how the command of an attempt contradicts the study that is published.

    Args:
        study: that is published.
        run: size, method and seed.
        command: of an attempt.
        last: whether the training ended with it: what a study named before there were results, and no
            more when it went on, was no choice among results.
    """
    size, method, seed = run
    options = dict(pairwise(command))
    for option, value in (("--size", size), ("--method", method), ("--seed", str(seed))):
        if options.get(option, value) != value:
            yield f"trains {option} {options[option]}"
    recorded = recorded_study(command)
    if recorded is None:
        return
    if recorded.name != study.name:
        yield f"is of the study {recorded.name}"
    if method not in recorded.run.methods or size not in recorded.run.sizes:
        yield "is of a study without this training"
    elif fingerprint(recorded.train_config(*run)) != fingerprint(study.train_config(*run)):
        yield "trains with other settings"
    if last:
        yield from _dropped(study, recorded)


def _dropped(study: Study, recorded: Study) -> Iterator[str]:
    """Yield what a study named when a training started and does not show."""
    for key in LISTS:
        dropped = [n for n in getattr(recorded.run, key) if n not in getattr(study.run, key)]
        if dropped:
            yield f"names {key} that are not shown: {', '.join(map(str, dropped))}"
    hidden = [name for name in recorded.evaluation.development if name not in study.evaluated()]
    if hidden:
        yield f"names development benchmarks that are not there: {', '.join(hidden)}"
    for name in study.run.benchmarks:
        asked = recorded.benchmarks.get(name)
        if (
            asked
            and name in recorded.run.benchmarks
            and asked.samples > study.benchmarks[name].samples
        ):
            yield f"asks for {asked.samples} samples of {name}, {study.benchmarks[name].samples} are shown"


def recorded_study(command: list[str]) -> Study | None:
    """Return the study that a command names; None where it names a file."""
    options = dict(pairwise(command))
    text = options.get("--study", "")
    if not text.startswith("{"):
        return None
    raw = untrusted.parse_json(text)
    untrusted.require_modest(raw)
    if raw["training"]["steps"] > MAX_STEPS:
        raise untrusted.RefusedError("a command names more steps than are looked at")
    return parse_study(raw)


def changed_since(results: Results) -> Iterator[str]:
    """Yield the settings that the study had when a training started and has no more."""
    found: dict[str, set[str]] = {}
    now = _leaves(results.study.model_dump(mode="json", exclude=set(SILENT)))
    for record in results.runs.values():
        for attempt in record["attempts"]:
            try:
                then = recorded_study(attempt["command"])
            except StudyError:
                continue
            if then is not None:
                old = _leaves(then.model_dump(mode="json", exclude=set(SILENT)))
                for key in now.keys() & old.keys():
                    if now[key] != old[key]:
                        found.setdefault(key, set()).add(json.dumps(old[key]))
    for key, old_values in sorted(found.items()):
        then_text = ", ".join(sorted(old_values))
        yield f"{key} is {json.dumps(now[key])}; when trainings started it was {then_text}"


def _leaves(value: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {place: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _leaves(inner, f"{place}.{key}" if place else key)
    return found
