"""Draws tables, figures and the report, and records where their numbers come from."""

from stapo.suite.job import Job, Jobs
from stapo.suite.jobs.analyse import SHOWN
from stapo.suite.runners import Resources, Runner


def _draw(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    from stapo.suite.analysis.artefacts import Artefacts
    from stapo.suite.analysis.drawing import DRAW

    for path in DRAW[selected[0].stage](Artefacts(jobs.study), [job.name for job in selected]):
        print(path)


def _write_provenance(jobs: Jobs, selected: list[Job], resources: Resources) -> None:
    from stapo.suite.publication.folder import write_provenance

    for path in write_provenance(jobs.study):
        print(path)


RUNNERS: dict[str, Runner] = {
    **dict.fromkeys(SHOWN, _draw),
    "provenance": _write_provenance,
}
