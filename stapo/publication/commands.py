"""Comparison of the commands that the trainings recorded with the published study.

An attempt records the whole study as it was when the training started. Whatever it lists and the folder
does not show was removed later, when results were known: this may be a selection of results.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stapo.canonical import leaves
from stapo.publication import untrusted
from stapo.publication.folder import MAX_STEPS, Results
from stapo.study import Study, StudyError, TrainingRun, identity, parse_study
from stapo.study.resolved import RESOLVED

LISTS = ("sizes", "methods", "seeds", "decodings", "benchmarks")
WRITTEN = re.compile(RESOLVED.format(study="[^/]+", fingerprint="[0-9a-f]+"))
"""Study files that Snakemake writes, and that trainings record."""
SILENT = ("engine", "run")
"""Sections of a study that are not compared: one has no influence on results, one is checked separately."""


def command_faults(
    study: Study, run: TrainingRun, attempt: dict[str, Any], last: bool
) -> Iterator[str]:
    """Yield how the command of an attempt contradicts the published study.

    Args:
        study: the published study.
        run: the training of the attempt.
        attempt: the training's record of it.
        last: whether the training finished in this attempt. What was removed from the study before its
            last attempt was removed before there were results.
    """
    size, method, seed = run
    options = dict(pairwise(attempt["command"]))
    for option, value in (("--size", size), ("--method", method), ("--seed", str(seed))):
        if options.get(option, value) != value:
            yield f"trains {option} {options[option]}"
    recorded = recorded_study(attempt)
    if recorded is None:
        if WRITTEN.fullmatch(options.get("--study", "")):
            yield f"names {options['--study']}, a study that the attempt does not record"
        return
    if recorded.name != study.name:
        yield f"is of the study {recorded.name}"
    if method not in recorded.run.methods or size not in recorded.run.sizes:
        yield "is of a study without this training"
    elif identity.train_fingerprint(recorded, run) != identity.train_fingerprint(study, run):
        yield "trains with other settings"
    if last:
        yield from _dropped(study, recorded)


def _dropped(study: Study, recorded: Study) -> Iterator[str]:
    """Yield the entries that a study had when a training started and no longer shows."""
    for key in LISTS:
        dropped = [n for n in getattr(recorded.run, key) if n not in getattr(study.run, key)]
        if dropped:
            yield f"lists {key} that are not shown: {', '.join(map(str, dropped))}"
    hidden = [name for name in recorded.evaluation.development if name not in study.evaluated()]
    if hidden:
        yield f"lists development benchmarks that are missing: {', '.join(hidden)}"
    for name in study.run.benchmarks:
        asked = recorded.benchmarks.get(name)
        if (
            asked
            and name in recorded.run.benchmarks
            and asked.samples > study.benchmarks[name].samples
        ):
            yield f"requests {asked.samples} samples of {name}, {study.benchmarks[name].samples} are shown"


def recorded_study(attempt: dict[str, Any]) -> Study | None:
    """Return the study that an attempt records; None if an older one refers to a file.

    In older results, the command itself contains the study as JSON.
    """
    raw = attempt.get("study")
    if raw is None:
        text = dict(pairwise(attempt["command"])).get("--study", "")
        if not text.startswith("{"):
            return None
        raw = untrusted.parse_json(text)
    untrusted.require_modest(raw)
    if raw["training"]["steps"] > MAX_STEPS:
        raise untrusted.RefusedError(f"a command has more than {MAX_STEPS} steps")
    return parse_study(raw)


def changed_since(results: Results) -> Iterator[str]:
    """Yield the settings that differ from those when a training started."""
    found: dict[str, set[str]] = {}
    now = leaves(results.study.model_dump(mode="json", exclude=set(SILENT)))
    for record in results.runs.values():
        for attempt in record["attempts"]:
            try:
                then = recorded_study(attempt)
            except StudyError:
                continue
            if then is not None:
                old = leaves(then.model_dump(mode="json", exclude=set(SILENT)))
                for key in now.keys() & old.keys():
                    if now[key] != old[key]:
                        found.setdefault(key, set()).add(json.dumps(old[key]))
    for key, old_values in sorted(found.items()):
        then_text = ", ".join(sorted(old_values))
        yield f"{key} is {json.dumps(now[key])}; when trainings started it was {then_text}"
