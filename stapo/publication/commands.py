"""Comparison of the commands that the trainings recorded with the published study.

An attempt records the whole study as it was when the training started. Whatever it lists and the folder
does not show was removed later, when results were known: this may be a selection of results.
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from stapo.canonical import canonical, leaves
from stapo.publication.folder import Results, published_study
from stapo.study import Study, TrainingRun, identity

LISTS = ("sizes", "methods", "seeds", "decodings", "benchmarks")
SILENT = ("engine", "run")
"""Sections of a study that are not compared: one has no influence on results, one is compared above."""


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
    trained = options.get("train", "")
    if "/" in trained and trained != str(run):
        yield f"trains {trained}"
    # How trainings were named before.
    for option, value in (("--size", size), ("--method", method), ("--seed", str(seed))):
        if options.get(option, value) != value:
            yield f"trains {option} {options[option]}"
    recorded = recorded_study(attempt)
    if recorded is None:
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
    """Return the study that an attempt records, None if the training was started by hand without one.

    Raises:
        RefusedError: it is larger than any study.
        StudyError: it is not a valid study.
    """
    raw = attempt.get("study")
    return None if raw is None else _parsed(canonical(raw))


@cache
def _parsed(text: str) -> Study:
    """Return a recorded study; all trainings of a run of Snakemake have the same."""
    return published_study(json.loads(text))


def changed_since(results: Results) -> Iterator[str]:
    """Yield the settings that differ from those when a training started."""
    found: dict[str, set[str]] = {}
    now = leaves(results.study.model_dump(mode="json", exclude=set(SILENT)))
    attempts = [one for record in results.runs.values() for one in record["attempts"]]
    for then in {id(one): one for one in map(recorded_study, attempts) if one}.values():
        old = leaves(then.model_dump(mode="json", exclude=set(SILENT)))
        for key in now.keys() & old.keys():
            if now[key] != old[key]:
                found.setdefault(key, set()).add(json.dumps(old[key]))
    for key, old_values in sorted(found.items()):
        then_text = ", ".join(sorted(old_values))
        yield f"{key} is {json.dumps(now[key])}; when trainings started it was {then_text}"
