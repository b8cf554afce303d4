"""What a finished study says of itself: where its results come from, and the checksums of its files."""

from collections.abc import Iterator

from stapo import paths
from stapo.stages import Job, Jobs, Resources

AFTER = ("report",)


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    study = of.study
    stages = ("prompts", "overlap", "base", "train", "intervene", "generate", "score", "tables")
    yield Job(
        "provenance",
        "",
        {},
        {stage: of.all(stage) for stage in (*stages, "evidence", "figures", "report")},
        (paths.PROVENANCE.format(study=study.name),),
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write provenance.json and SHA256SUMS."""
    from stapo.publication.folder import write_provenance

    for path in write_provenance(of.study):
        print(path)
