"""The report: one HTML page with tables, figures, tokens and responses, which opens offline."""

from collections.abc import Iterator
from pathlib import Path

from stapo import paths
from stapo.stages import Job, Jobs, Resources, recorded_in

AFTER = ("tables", "evidence", "figures")


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    yield Job(
        "report",
        "",
        {"study": of.study.name},
        {stage: of.all(stage) for stage in AFTER},
        (paths.REPORT.format(study=of.study.name),),
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write the report."""
    from stapo.analysis.report import write_report

    print(write_report(of.study))


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the report."""
    return recorded_in(root / job.outputs[0])
