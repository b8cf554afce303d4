"""What a finished study shows: tables, figures, the report, and where its numbers come from."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stapo.suite import paths
from stapo.suite.exhibits import figure_names, table_names
from stapo.suite.job import Job, Jobs, Stage, recorded_first
from stapo.suite.jobs.train import NAMES_OF_METHODS
from stapo.suite.study import Study

SHOWN_BY = ("tables", "evidence", "figures")
"""What the report contains."""
SHOWN = (*SHOWN_BY, "report")
"""What is drawn."""
READ = ("train", "intervene", "generate", "score")
"""What tables of evidence and figures are computed from."""


def shown(study: Study) -> dict[str, Any]:
    """Return the settings that change what tables and figures show, and no result."""
    return {
        "methods": {
            name: {key: getattr(study.method(name), key) for key in NAMES_OF_METHODS}
            for name in study.run.methods
        },
        "evaluation": study.evaluation.model_dump(include={"verdict", "curve"}),
        "compare": dict(zip(("target", "baselines"), study.compared(), strict=True)),
        "run": _run(study),
    }


def _run(study: Study, *without: str) -> dict[str, Any]:
    """Return what is run; `models` has its former name, as in the fingerprints of all results so far."""
    run = study.run.model_dump(exclude={*without})
    return {"sizes": run.pop("models"), **run}


def _tables(jobs: Jobs) -> Iterator[Job]:
    """Yield a job for each decoding."""
    study = jobs.study
    settings = shown(study)
    for decoding in study.run.decodings:
        cells = study.table_cells(decoding)
        scores = tuple(jobs.job("score", f"{point}/{decoding}/{name}") for point, name in cells)
        yield Job(
            "tables",
            decoding,
            {**settings, "run": _run(study, "decodings")},
            {"scores": scores, "overlap": (jobs.job("overlap"),)},
            (paths.MAIN_TABLE.format(study=study.name, decoding=decoding),),
        )


def _results(jobs: Jobs) -> dict[str, Any]:
    return {stage: jobs.all(stage) for stage in (*READ, "overlap")}


def _evidence(jobs: Jobs) -> Iterator[Job]:
    """Yield the one job: tables of evidence, and all values of the main tables."""
    study, settings = jobs.study, shown(jobs.study)
    if (
        study.compare and study.compare.endpoint
    ):  # Other studies keep the fingerprint that they had.
        settings["endpoint"] = study.compare.endpoint
    outputs = [
        paths.TABLE.format(study=study.name, table=table, suffix=suffix)
        for table in table_names(study)
        for suffix in paths.SUFFIXES
    ]
    outputs.append(paths.VALUES.format(study=study.name))
    yield Job("evidence", "", settings, _results(jobs), tuple(outputs))


def _figures(jobs: Jobs) -> Iterator[Job]:
    outputs = tuple(
        paths.FIGURE.format(study=jobs.study.name, figure=figure, suffix=suffix)
        for figure in figure_names(jobs.study)
        for suffix in paths.FIGURE_SUFFIXES
    )
    yield Job("figures", "", shown(jobs.study), _results(jobs), outputs)


def _report(jobs: Jobs) -> Iterator[Job]:
    name, read = jobs.study.name, {stage: jobs.all(stage) for stage in SHOWN_BY}
    yield Job("report", "", {"study": name}, read, (paths.REPORT.format(study=name),))


def _provenance(jobs: Jobs) -> Iterator[Job]:
    stages = ("prompts", "overlap", "base", *READ, *SHOWN)
    read = {stage: jobs.all(stage) for stage in stages}
    # Weights may have been removed to make space; the trainings took their checksums.
    read["base"] = tuple(replace(job, weights=()) for job in read["base"])
    made = (path.format(study=jobs.study.name) for path in (paths.PROVENANCE, paths.CHECKSUMS))
    yield Job("provenance", "", {}, read, tuple(made))


STAGES = {
    "tables": Stage(("overlap", "score"), _tables, recorded_first),
    "evidence": Stage((*READ, "tables"), _evidence),
    "figures": Stage((*READ, "tables"), _figures),
    "report": Stage(SHOWN_BY, _report, recorded_first),
    "provenance": Stage(("report",), _provenance),
}
