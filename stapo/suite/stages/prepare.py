"""What trainings start from: prompts, their overlap with benchmarks, base models and the verifier.

Studies that have the same models share them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS, damaged_file
from stapo.core.files import fingerprint, link_tree, read_json, write_json
from stapo.suite import paths
from stapo.suite.answers import Setting, is_built_in
from stapo.suite.locks import work_directory
from stapo.suite.stages import Job, Jobs, Resources, Stage
from stapo.suite.study import Study
from stapo.suite.study.sources import (
    FileData,
    GgufModel,
    HubData,
    HubModel,
    Model,
    TinyModel,
    WheelModel,
)

VERIFIER = "verifier"
"""Name of the verifier's job; no size has this name."""


def _prompts(of: Jobs) -> Iterator[Job]:
    """Yield the one job: questions and gold answers, from the Hub, a file, or made."""
    study = of.study
    # Number and checksum only check: to write them into a study trains nothing anew. Of a file, its content.
    checks = {"unique_prompts", "sha256"}
    without = {"file"} if isinstance(study.data, FileData) else checks
    # Prompts that cannot earn the reward are left out; a training depends on its reward anyway.
    rewarded = {} if (reward := _built_in_reward(study)) == "boxed" else {"reward": reward}
    yield Job(
        "prompts",
        "",
        {"recipe": 1, "data": study.data.constants() | study.data.model_dump(exclude=without)},
        outputs=tuple(p.format(study=study.name) for p in (paths.PROMPTS, paths.PROMPTS_RECORD)),
        also=study.data.model_dump(include=checks) | rewarded,
    )


def _built_in_reward(study: Study) -> Setting | None:
    return study.training.reward if is_built_in(study.training.reward) else None


def _write_prompts(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write the prompts, and say how many they are and their checksum."""
    from stapo.suite.training.prompts import write_prompts

    data = of.study.data
    out, record = map(Path, jobs[0].outputs)
    found = write_prompts(data, out, record, _built_in_reward(of.study))
    print(
        "{prompts} prompts: {unique} unique ones in {rows} rows, {conflicting} left out for conflicting "
        "answers".format(**found)
    )
    known = isinstance(data, HubData) and data.sha256 is None
    print(f"sha256 {found['sha256']}" + "; write it into the study as data.sha256" * known)


def benchmark_settings(study: Study, benchmark: str) -> dict[str, Any]:
    """Return what determines the problems of a benchmark and how many responses each gets."""
    return {"task": study.task(benchmark), "samples": study.benchmarks[benchmark].samples}


def _overlap(of: Jobs) -> Iterator[Job]:
    """Yield the one job: what a model was trained on must not be counted as solved."""
    study = of.study
    benchmarks = {name: benchmark_settings(study, name) for name in study.run.benchmarks}
    yield Job(
        "overlap",
        "",
        {"recipe": 2, "benchmarks": benchmarks},
        {"prompts": of.one("prompts", "")},
        (paths.OVERLAP.format(study=study.name),),
    )


def _write_overlap(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write how many problems of each benchmark are training prompts."""
    write_json(Path(jobs[0].outputs[0]), check_overlap(of.study))


def check_overlap(study: Study) -> dict[str, Any]:
    """Return the overlap of each benchmark.

    Raises:
        StudyError: prompts of the study's own are problems of a benchmark.
    """
    from stapo.suite.evaluation.task import benchmark_questions
    from stapo.suite.training import prompts

    files = {name: study.rows_file(name) for name in study.run.benchmarks}
    questions = {
        name: [row["question"] for row in file.read()]
        if file
        else benchmark_questions(study.task(name))
        for name, file in files.items()
    }
    path = Path(paths.PROMPTS.format(study=study.name))
    return prompts.check_overlap(path, questions, isinstance(study.data, HubData))


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
    if verifier is None:
        return {}
    return {**verifier.model_dump(), "template": verifier.template}


def _base(of: Jobs) -> Iterator[Job]:
    """Yield a job for each size, and one for the verifier if the study has one."""
    study = of.study
    for size in study.run.sizes:
        at = {"study": study.name, "size": size}
        yield Job(
            "base",
            size,
            {"recipe": 1, "model": model_settings(study.models[size])},
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


def _write_base(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Build or download each model once, and publish it by hard links."""
    from stapo.suite.models.base import write_base

    for job in jobs:
        judge = of.study.evaluation.verifier if job.name == VERIFIER else None
        model = judge or of.study.models[job.name]
        made_from = verifier_settings(of.study) if judge else model_settings(model)
        work = Path(paths.BASE_WORK.format(fingerprint=job.fingerprint))
        with work_directory(work, job.config):
            built = work / "model"
            if not (built / SUMS).is_file() or damaged_file(built):
                write_base(model, built)
            link_tree(built, Path(job.weights[0]))
        write_json(Path(job.outputs[0]), made_from)


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
    "prompts": Stage((), _prompts, _write_prompts),
    "overlap": Stage(("prompts",), _overlap, _write_overlap),
    "base": Stage((), _base, _write_base, recorded_base, is_costly=True),
}
