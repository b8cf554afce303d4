"""What trainings start from: prompts, their overlap with benchmarks, base models and the verifier.

Studies that have the same models share them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo.core.files import fingerprint, read_json
from stapo.suite import paths
from stapo.suite.answers import Setting, is_built_in
from stapo.suite.job import Job, Jobs, Stage
from stapo.suite.study import Study
from stapo.suite.study.sources import (
    FileData,
    GgufModel,
    HubModel,
    Model,
    TinyModel,
    WheelModel,
)

VERIFIER = "verifier"
"""Name of the verifier's job; no model has this name."""


def _prompts(jobs: Jobs) -> Iterator[Job]:
    """Yield the one job: questions and gold answers, from the Hub, a file, or made."""
    study = jobs.study
    # Number and checksum only check: to write them into a study trains nothing anew. Of a file, its content.
    checks = {"unique_prompts", "sha256"}
    without = {"file"} if isinstance(study.data, FileData) else checks
    # Prompts that cannot earn the reward are left out; a training depends on its reward anyway.
    rewarded = {} if (reward := built_in_reward(study)) == "boxed" else {"reward": reward}
    yield Job(
        "prompts",
        "",
        {"recipe": 1, "data": study.data.constants() | study.data.model_dump(exclude=without)},
        outputs=tuple(p.format(study=study.name) for p in (paths.PROMPTS, paths.PROMPTS_RECORD)),
        rerun_on=study.data.model_dump(include=checks) | rewarded,
    )


def built_in_reward(study: Study) -> Setting | None:
    """Return the reader that gives the rewards, None for a reward of the study's own."""
    return study.training.reward if is_built_in(study.training.reward) else None


def benchmark_settings(study: Study, benchmark: str) -> dict[str, Any]:
    """Return what determines the problems of a benchmark and how many responses each gets."""
    return {"task": study.task(benchmark), "samples": study.benchmarks[benchmark].samples}


def _overlap(jobs: Jobs) -> Iterator[Job]:
    """Yield the one job: what a model was trained on must not be counted as solved."""
    study = jobs.study
    benchmarks = {name: benchmark_settings(study, name) for name in study.run.benchmarks}
    yield Job(
        "overlap",
        "",
        {"recipe": 2, "benchmarks": benchmarks},
        {"prompts": jobs.job("prompts")},
        (paths.OVERLAP.format(study=study.name),),
    )


def model_settings(model: Model | HubModel) -> dict[str, Any]:
    """Return the settings of a base model; of one in files, their content and not their place."""
    apart = {"path", "supervised"}
    if isinstance(model, GgufModel | WheelModel):
        settings = {"dequantised": "float32", "gguf_sha256": model.sha256}
    else:
        settings = model.constants() | model.model_dump(mode="json", exclude=apart)
    if supervised := getattr(model, "supervised", None):
        settings["supervised"] = supervised.model_dump(mode="json", exclude={"file"})
    for name in ("slip_rate", "connecting_word_rate"):
        if settings.get(name) == TinyModel.model_fields[name].default:
            del settings[name]  # Models from before this setting keep their fingerprint.
    return settings


def verifier_settings(study: Study) -> dict[str, Any]:
    """Return what determines the verifier's directory; nothing without a verifier."""
    verifier = study.evaluation.verifier
    return {**verifier.model_dump(), "template": verifier.template} if verifier else {}


def _base(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each model, and one for the verifier if the study has one."""
    study = jobs.study
    for model in study.run.models:
        at = {"study": study.name, "model": model}
        yield Job(
            "base",
            model,
            {"recipe": 1, "model": model_settings(study.models[model])},
            outputs=(paths.BASE_RECORD.format(**at),),
            weights=(paths.BASE_MODEL.format(**at),),
        )
    if study.evaluation.verifier:
        yield Job(
            "base",
            VERIFIER,
            {"recipe": 1, "verifier": verifier_settings(study)},
            outputs=(paths.VERIFIER_RECORD.format(study=study.name),),
            weights=(paths.VERIFIER.format(study=study.name),),
        )


def recorded_base(job: Job, root: Path) -> str | None:
    """Return the fingerprint of the published model, by the settings in its record.

    Weights that were removed since, to make space, do not count: nothing is built again for them alone.
    """
    name = "verifier" if job.name == VERIFIER else "model"
    try:
        return fingerprint({"recipe": 1, name: read_json(root / job.outputs[0])})
    except ValueError:  # Damaged.
        return ""
    except OSError:
        return None


STAGES = {
    "prompts": Stage((), _prompts),
    "overlap": Stage(("prompts",), _overlap),
    "base": Stage((), _base, recorded_base, is_costly=True),
}
