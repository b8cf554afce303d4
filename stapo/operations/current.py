"""What of a study's results was made by the study as it is now, judged by the fingerprints in the files.

`status` and `plan` say the same since both ask here. Files are taken as they are found: what is truncated,
strange or hostile is not current, and is no error of ours.
"""

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.files import text_of
from stapo.operations.job_logs import modified
from stapo.records.scores import read_identity
from stapo.study import Checkpoint, Study, TrainingRun, identity

MADE_BY = re.compile(r"\bConfiguration ([0-9a-f]{16})\b")
"""In tables and reports."""


def is_trained(study: Study, root: Path, run: TrainingRun) -> bool:
    """Return whether a training is published, with the settings of the study."""
    published = root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
    metrics = root / paths.METRICS.format(study=study.name, **run.wildcards)
    record: Any = {}
    with suppress(ValueError, RecursionError):
        record = json.loads(text_of(published))
    if not (modified(metrics) and isinstance(record, dict)):
        return False
    outputs = record.get("outputs")
    kept = {str(path).partition("/")[0] for path in outputs} if isinstance(outputs, dict) else set()
    made_by = record.get("fingerprint") == identity.train_fingerprint(study, run)
    return made_by and kept >= {f"step{step}" for step in study.kept_steps()}


def is_built(study: Study, root: Path, size: str) -> bool:
    """Return whether the base model of a size, or the `verifier`, was made with the settings of the study.

    Weights that were removed since, to make space, do not count: nothing is built again for them alone.
    """
    place, settings = paths.BASE_RECORD, study.models.get(size)
    wanted = identity.model_settings(settings) if settings else {}
    if size == "verifier":
        place, wanted = paths.VERIFIER_RECORD, identity.verifier_config(study)
    with suppress(ValueError, RecursionError):
        found = json.loads(text_of(root / place.format(study=study.name, size=size)))
        return bool(wanted) and found == wanted
    return False


def is_made(study: Study, root: Path, checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is that of the study."""
    if checkpoint.run is None:
        return is_built(study, root, checkpoint.size)
    return is_trained(study, root, checkpoint.run)


def intervention_state(study: Study, root: Path, checkpoint: Checkpoint) -> str:
    """Return whether the interventions at a checkpoint are `there`, `outdated` or `missing`."""
    at = {"study": study.name, "checkpoint": checkpoint}
    numbers, tokens = (
        root / paths.INTERVENTION.format(**at, suffix=suffix)
        for suffix in paths.INTERVENTION_SUFFIXES
    )
    if not (modified(numbers) and modified(tokens)):
        return "missing"
    with suppress(ValueError, RecursionError):
        found = json.loads(text_of(numbers))
        made_by = identity.intervention_fingerprint(study, checkpoint)
        if isinstance(found, dict) and found.get("fingerprint") == made_by:
            return "there"
    return "outdated"


def score_state(
    study: Study, root: Path, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> str:
    """Return whether a score is `current`, `outdated` (or unreadable) or `missing`."""
    at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
    path = root / paths.SCORES.format(**at, benchmark=benchmark)
    if not modified(path):
        return "missing"
    with suppress(OSError, ValueError):
        found = read_identity(path).get("fingerprint")
        if found == identity.score_fingerprint(study, checkpoint, decoding, benchmark):
            return "current"
    return "outdated"


def outputs(study: Study, root: Path) -> dict[str, str]:
    """Return of tables, report and provenance whether they are `there`, and how many files are missing."""
    found, newest = {}, 0.0
    for decoding in study.run.decodings:
        at = {"study": study.name, "decoding": decoding, "suffix": "md"}
        path = root / paths.MAIN_TABLE.format(**at)
        scores = [modified(root / path) for path in paths.table_score_paths(study, decoding)]
        found[f"table {decoding}"] = _state(
            path, identity.table_fingerprint(study, decoding), max(scores)
        )
        newest = max(newest, modified(path))
    if states := [intervention_state(study, root, one) for one in study.intervened()]:
        left = Counter(states)
        others = [
            f"{left[state]} of {len(states)} {state}" for state in sorted({*left} - {"there"})
        ]
        found["interventions"] = ", ".join(others) or "there"
    report = root / paths.REPORT.format(study=study.name)
    curves = paths.score_paths(study, study.run.decodings) if study.kept_steps() else []
    shown = [*curves, *paths.figure_paths(study)]
    newest = max(newest, *(modified(root / path) for path in shown))
    found["report"] = _state(report, identity.report_fingerprint(study), newest)
    provenance = modified(root / paths.PROVENANCE.format(study=study.name))
    found["provenance"] = _age(provenance, modified(report))
    published = paths.published_paths(study)
    missing = sum(not modified(root / path) for path in published)
    found["files"] = f"{missing} of {len(published)} missing" if missing else "there"
    return found


def _state(output: Path, wanted: str, newest_input: float) -> str:
    written = modified(output)
    if written and wanted not in MADE_BY.findall(text_of(output)):
        return "outdated, made with other settings"
    return _age(written, newest_input)


def _age(output: float, newest_input: float) -> str:
    if not output:
        return "missing"
    return "there" if output >= newest_input else "older than its input"
