"""A training started by hand, as several tests and programs do."""

from pathlib import Path
from typing import Any

from stapo.methods import METHODS
from stapo.study.schema import TrainingSettings
from stapo.training.run import TrainingJob


def job_in(
    world: Path, out: Path, training: TrainingSettings, method: str, **changes: Any
) -> TrainingJob:
    """Return a training on `base` and `prompts.jsonl` of a directory, with all outputs in another.

    Args:
        world: directory of the inputs.
        out: directory of the outputs.
        training: settings.
        method: name of the method.
        **changes: other arguments of TrainingJob, also in place of those above; the seed is 0.
    """
    given: dict[str, Any] = {
        "config": {},
        "training": training,
        "method": METHODS[method],
        "seed": 0,
        "base": world / "base",
        "prompts": world / "prompts.jsonl",
        "work": out / "work",
        "model_path": out / "model",
        "metrics_path": out / "metrics.jsonl",
    }
    return TrainingJob(**given | changes)
