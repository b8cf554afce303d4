"""The documents of `stapo doctor` and `status` with `--json`.

Their keys are those of the dataclasses that they are made of; docs/command-line.md lists them.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from stapo.operations.current import outputs
from stapo.operations.doctor import diagnose
from stapo.operations.status import answers, trainings
from stapo.study import Study


def doctor_document(study: Study, needed_bytes: int | None = None) -> dict[str, Any]:
    """Return the checks of this machine for a study; `needed_bytes` as in `diagnose`."""
    checks = list(diagnose(study, needed_bytes))
    return {
        "study": study.name,
        "failed": any(check.level == "error" for check in checks),
        "checks": [asdict(check) for check in checks],
    }


def status_document(study: Study, root: Path = Path()) -> dict[str, Any]:
    """Return how far a study is."""
    trained, evaluations = trainings(study, root), answers(study, root)
    return {
        "study": study.name,
        "steps": study.training.steps,
        "failed": "failed" in [*(t.state for t in trained), *(a.state for a in evaluations)],
        "trainings": [{**asdict(one), "run": str(one.run)} for one in trained],
        "evaluations": [{**asdict(one), "checkpoint": str(one.checkpoint)} for one in evaluations],
        "outputs": outputs(study, root),
    }
