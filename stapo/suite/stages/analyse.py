"""What a finished study shows: tables, figures, the report, and where its numbers come from."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stapo.suite import paths
from stapo.suite.exhibits import figure_names, table_names
from stapo.suite.stages import Job, Jobs, Resources, Stage, recorded_first
from stapo.suite.stages.train import NAMES_OF_METHODS
from stapo.suite.study import Study

SHOWN_BY = ("tables", "evidence", "figures")
"""What the report contains."""
READ = ("train", "intervene", "generate", "score")
"""What tables of evidence and figures are computed from."""


def shown(study: Study) -> dict[str, Any]:
    """Return the settings that change what tables and figures show, and no result."""
    methods = {name: study.method(name) for name in study.run.methods}
    evaluation = study.evaluation
    names = {
        name: {key: getattr(method, key) for key in NAMES_OF_METHODS}
        for name, method in methods.items()
    }
    return {
        "methods": names,
        "evaluation": evaluation.model_dump(include={"verdict", "curve"}),
        "compare": dict(zip(("target", "baselines"), study.compared(), strict=True)),
        "run": study.run.model_dump(),
    }


def _tables(of: Jobs) -> Iterator[Job]:
    """Yield a job for each decoding."""
    study = of.study
    settings = shown(study)
    for decoding in study.run.decodings:
        cells = study.table_cells(decoding)
        scores = tuple(of.one("score", f"{one}/{decoding}/{name}") for one, name in cells)
        at = {"study": study.name, "decoding": decoding}
        yield Job(
            "tables",
            decoding,
            {**settings, "run": study.run.model_dump(exclude={"decodings"})},
            {"scores": scores, "overlap": (of.one("overlap", ""),)},
            (paths.MAIN_TABLE.format(**at),),
        )


def _write_tables(of: Jobs, jobs: list[Job], how: Resources) -> None:
    from stapo.suite.analysis.main_tables import write_tables

    for job in jobs:
        print(write_tables(of.study, job.name))


def _results(of: Jobs) -> dict[str, Any]:
    return {stage: of.all(stage) for stage in (*READ, "overlap")}


def _evidence(of: Jobs) -> Iterator[Job]:
    """Yield the one job: tables of evidence, and all values of the main tables."""
    study = of.study
    # Settings of some studies alone: others keep the fingerprint that they had before there were these.
    named = {"endpoint": study.compare.endpoint if study.compare else None}
    settings = shown(study)
    outputs = [
        paths.TABLE.format(study=study.name, table=table, suffix=suffix)
        for table in table_names(study)
        for suffix in paths.SUFFIXES
    ]
    outputs.append(paths.VALUES.format(study=study.name))
    settings |= {key: one for key, one in named.items() if one}
    yield Job("evidence", "", settings, _results(of), tuple(outputs))


def _write_evidence(of: Jobs, jobs: list[Job], how: Resources) -> None:
    from stapo.suite.analysis.artefacts import Artefacts
    from stapo.suite.analysis.tables import write_evidence
    from stapo.suite.analysis.values import write_values

    artefacts = Artefacts(of.study)
    for name in table_names(of.study):
        print(*write_evidence(artefacts, name))
    print(write_values(artefacts))


def _figures(of: Jobs) -> Iterator[Job]:
    outputs = tuple(
        paths.FIGURE.format(study=of.study.name, figure=figure, suffix=suffix)
        for figure in figure_names(of.study)
        for suffix in paths.FIGURE_SUFFIXES
    )
    yield Job("figures", "", shown(of.study), _results(of), outputs)


def _write_figures(of: Jobs, jobs: list[Job], how: Resources) -> None:
    from stapo.suite.analysis.artefacts import Artefacts
    from stapo.suite.analysis.charts import write_figure

    artefacts = Artefacts(of.study)
    for name in figure_names(of.study):
        print(*write_figure(artefacts, name))


def _report(of: Jobs) -> Iterator[Job]:
    name, read = of.study.name, {stage: of.all(stage) for stage in SHOWN_BY}
    yield Job("report", "", {"study": name}, read, (paths.REPORT.format(study=name),))


def _write_report(of: Jobs, jobs: list[Job], how: Resources) -> None:
    from stapo.suite.analysis.report import write_report

    print(write_report(of.study))


def _provenance(of: Jobs) -> Iterator[Job]:
    stages = ("prompts", "overlap", "base", *READ, *SHOWN_BY, "report")
    read = {stage: of.all(stage) for stage in stages}
    # Weights may have been removed to make space; the trainings took their checksums.
    read["base"] = tuple(replace(one, weights=()) for one in read["base"])
    made = (path.format(study=of.study.name) for path in (paths.PROVENANCE, paths.CHECKSUMS))
    yield Job("provenance", "", {}, read, tuple(made))


def _write_provenance(of: Jobs, jobs: list[Job], how: Resources) -> None:
    from stapo.suite.publication.folder import write_provenance

    for path in write_provenance(of.study):
        print(path)


STAGES = {
    "tables": Stage(("overlap", "score"), _tables, _write_tables, recorded_first),
    "evidence": Stage((*READ, "tables"), _evidence, _write_evidence),
    "figures": Stage((*READ, "tables"), _figures, _write_figures),
    "report": Stage(SHOWN_BY, _report, _write_report, recorded_first),
    "provenance": Stage(("report",), _provenance, _write_provenance),
}
