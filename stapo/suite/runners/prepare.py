"""Makes what trainings start from: prompts, their overlap with benchmarks, base models and the verifier."""

from pathlib import Path
from typing import Any

from stapo.core.checksums import SUMS, damaged_file
from stapo.core.files import link_tree, write_json
from stapo.suite import paths
from stapo.suite.job import Job, Jobs
from stapo.suite.jobs.prepare import VERIFIER, built_in_reward, model_settings, verifier_settings
from stapo.suite.locks import work_directory
from stapo.suite.runners import Resources, Runner
from stapo.suite.study import Study
from stapo.suite.study.sources import HubData


def _write_prompts(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Write the prompts, and say how many they are and their checksum."""
    from stapo.suite.training import prompts

    data = jobs.study.data
    out, record = map(Path, selected[0].outputs)
    counts = prompts.write_prompts(data, out, record, built_in_reward(jobs.study))
    print(
        "{prompts} prompts: {unique} unique ones in {rows} rows, {conflicting} left out for conflicting "
        "answers".format(**counts)
    )
    known = isinstance(data, HubData) and data.sha256 is None
    print(f"sha256 {counts['sha256']}" + "; write it into the study as data.sha256" * known)


def _write_overlap(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Write how many problems of each benchmark are training prompts."""
    write_json(Path(selected[0].outputs[0]), check_overlap(jobs.study))


def check_overlap(study: Study) -> dict[str, Any]:
    """Return the overlap of each benchmark.

    Raises:
        StudyError: prompts of the study's own are problems of a benchmark.
    """
    from stapo.suite.evaluation.task import benchmark_rows
    from stapo.suite.training import prompts

    questions = {}
    for name in study.run.benchmarks:
        rows = study.rows_of_file(name) or benchmark_rows(study.task(name)["metadata"])
        questions[name] = [row["question"] for row in rows]
    path = Path(paths.PROMPTS.format(study=study.name))
    return prompts.check_overlap(path, questions, isinstance(study.data, HubData))


def _write_base(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    """Build or download each model once, and publish it by hard links."""
    from stapo.suite.models.base import write_base

    for job in selected:
        judge = jobs.study.evaluation.verifier if job.name == VERIFIER else None
        model = judge or jobs.study.models[job.name]
        made_from = verifier_settings(jobs.study) if judge else model_settings(model)
        work = Path(paths.BASE_WORK.format(fingerprint=job.fingerprint))
        with work_directory(work, job.config):
            built = work / "model"
            if not (built / SUMS).is_file() or damaged_file(built):
                write_base(model, built)
            link_tree(built, Path(job.weights[0]))
        write_json(Path(job.outputs[0]), made_from)


RUNNERS: dict[str, Runner] = {
    "prompts": _write_prompts,
    "overlap": _write_overlap,
    "base": _write_base,
}
