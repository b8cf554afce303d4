"""Overlap of training prompts and benchmarks: what a model was trained on must not be counted as solved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.study import Study
from stapo.study.sources import HubData
from stapo.tasks import benchmark_definitions

AFTER = ("prompts",)
RECIPE = 2


def benchmark_settings(study: Study, benchmark: str) -> dict[str, Any]:
    """Return what determines the problems of a benchmark and how many responses each gets."""
    return {"task": study.task(benchmark), "samples": study.benchmarks[benchmark].samples}


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    study = of.study
    benchmarks = {name: benchmark_settings(study, name) for name in study.evaluated()}
    yield Job(
        "overlap",
        "",
        {"recipe": RECIPE, "benchmarks": benchmarks},
        {"prompts": of.one("prompts", "")},
        (paths.OVERLAP.format(study=study.name),),
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write how many problems of each benchmark are training prompts."""
    from stapo.files import write_json

    write_json(Path(jobs[0].outputs[0]), check(of.study))


def check(study: Study) -> dict[str, Any]:
    """Return the overlap of each benchmark.

    Raises:
        StudyError: prompts of the study's own are problems of a benchmark.
    """
    benchmarks = study.evaluated()
    files = {name: study.rows_file(name) for name in benchmarks}
    definitions = benchmark_definitions()
    if any(not file and "hub" in definitions[name]["metadata"] for name, file in files.items()):
        from stapo.hub import offline_if_unreachable

        offline_if_unreachable()
    from stapo.evaluation.task import benchmark_questions
    from stapo.training.prompts import check_overlap

    questions = {
        name: [row["question"] for row in file.read()] if file else benchmark_questions(name)
        for name, file in files.items()
    }
    prompts = Path(paths.PROMPTS.format(study=study.name))
    return check_overlap(prompts, questions, isinstance(study.data, HubData))
