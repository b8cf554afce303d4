"""Why results are made again: which settings differ from those that they were made with.

A training's record contains its settings. Score files contain only fingerprints, which are looked up among
the resolved studies that earlier runs wrote under `work/`. Files are taken as they are found.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.canonical import canonical, leaves
from stapo.files import text_of
from stapo.operations.job_logs import modified
from stapo.records.scores import read_identity
from stapo.study import Checkpoint, Study, StudyError, TrainingRun, identity
from stapo.study.resolved import RESOLVED, read_resolved
from stapo.text import plain, shorten

MAX_VERSIONS = 100
"""Resolved studies that are looked at, newest first."""
SHOWN = 3
"""Settings that a reason names."""
MAX_VALUE = 60
"""Characters of a value that a reason shows."""
UNKNOWN = "other settings, which are recorded nowhere here"


def changes(before: Any, now: Any) -> str:
    """Return the settings that differ, such as `training.steps 96 -> 48`; empty if none do."""
    old, new = leaves(before), leaves(now)
    found = [
        f"{plain(place)} {_shown(old, place)} -> {_shown(new, place)}"
        for place in dict.fromkeys([*new, *old])
        if old.get(place, "") != new.get(place, "")
    ]
    more = [f"{len(found) - SHOWN} more"] * (len(found) > SHOWN)
    return ", ".join([*found[:SHOWN], *more])


def _shown(values: dict[str, Any], place: str) -> str:
    if place not in values:
        return "(none)"
    return plain(shorten(canonical(values[place]), MAX_VALUE))


def training_reason(study: Study, root: Path, run: TrainingRun) -> str:
    """Return why a published training is not that of the study, empty if it is.

    Args:
        study: as it is now.
        root: working directory.
        run: a training that was published.
    """
    path = root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
    with suppress(ValueError, RecursionError, TypeError, LookupError):
        before = json.loads(text_of(path))["config"]
        now = json.loads(canonical(identity.train_config(study, run)))
        return changes(before, now) or "weights after other steps"
    return UNKNOWN


def score_reason(
    study: Study, root: Path, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> str:
    """Return why the scores of a cell are not those of the study."""
    cell = checkpoint, decoding, benchmark
    at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
    with suppress(OSError, ValueError):
        made_by = read_identity(root / paths.SCORES.format(**at, benchmark=benchmark))

        def makes(one: Study) -> bool:
            return identity.score_fingerprint(one, *cell) == made_by.get("fingerprint")

        if before := _version(study, root, makes):
            return changes(_score_config(before, *cell), _score_config(study, *cell)) or UNKNOWN
    return UNKNOWN


def _score_config(
    study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> dict[str, Any]:
    """Return what determines the scores of a cell, by the places of a study as far as it has them."""
    generate = identity.generate_config(study, checkpoint, decoding)
    weights = generate.pop("checkpoint")
    return {
        **weights,
        **generate,
        "benchmark": identity.benchmark_config(study, benchmark),
        "verifier": identity.judge_config(study),
    }


def _version(study: Study, root: Path, makes: Callable[[Study], bool]) -> Study | None:
    """Return the newest resolved study that makes what was found, None without one."""
    places = RESOLVED.format(study=study.name, fingerprint="*")
    files = sorted(root.glob(places), key=modified, reverse=True)
    for path in files[:MAX_VERSIONS]:
        # What one study has, another may lack: a method, a benchmark, a decoding.
        with suppress(StudyError, OSError, LookupError, ValueError):
            found = read_resolved(path)
            if makes(found):
                return found
    return None
