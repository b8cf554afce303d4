"""Tables of evidence, and all values of the main tables."""

from collections.abc import Iterator
from typing import Any

from stapo import paths
from stapo.exhibits import table_names
from stapo.stages import Job, Jobs, Resources
from stapo.stages.tables import shown

AFTER = ("train", "intervene", "generate", "score", "tables")


def all_results(of: Jobs) -> dict[str, Any]:
    """Return everything that tables of evidence and figures are computed from."""
    stages = ("train", "intervene", "generate", "score", "overlap")
    return {stage: of.all(stage) for stage in stages}


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    study = of.study
    # Settings of some studies alone: others keep the fingerprint that they had before there were these.
    named = {
        "endpoint": study.compare.endpoint if study.compare else None,
        "disclosed": [one.model_dump() for one in study.disclosed],
    }
    yield Job(
        "evidence",
        "",
        {**shown(study), **{key: one for key, one in named.items() if one}},
        all_results(of),
        (
            *(
                paths.TABLE.format(study=study.name, table=table, suffix=suffix)
                for table in table_names(study)
                for suffix in paths.SUFFIXES
            ),
            paths.VALUES.format(study=study.name),
        ),
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write all tables of evidence, values.csv."""
    from stapo.analysis.tables import write_evidence
    from stapo.analysis.values import write_values

    for name in table_names(of.study):
        print(*write_evidence(of.study, name))
    print(write_values(of.study))
