"""Training prompts: questions and gold answers, from the Hub, a file, or made."""

from collections.abc import Iterator

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.study.sources import FileData, HubData

AFTER = ()
RECIPE = 1


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    study = of.study
    # Number and checksum only check: to write them into a study trains nothing anew. Of a file, its content.
    checks = {"unique_prompts", "sha256"}
    without = {"file"} if isinstance(study.data, FileData) else checks
    yield Job(
        "prompts",
        "",
        {"recipe": RECIPE, "data": study.data.constants() | study.data.model_dump(exclude=without)},
        outputs=tuple(p.format(study=study.name) for p in (paths.PROMPTS, paths.PROMPTS_RECORD)),
        also=study.data.model_dump(include=checks),
    )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write the prompts, and say how many they are and their checksum."""
    data = of.study.data
    if isinstance(data, HubData):
        from stapo.hub import offline_if_unreachable

        offline_if_unreachable()
    from pathlib import Path

    from stapo.training.prompts import write_prompts

    out, record = map(Path, jobs[0].outputs)
    found = write_prompts(data, out, record, of.study.prompts_file())
    print(
        "{prompts} prompts: {unique} unique ones in {rows} rows, {conflicting} left out for conflicting "
        "answers".format(**found)
    )
    known = isinstance(data, HubData) and data.sha256 is None
    print(f"sha256 {found['sha256']}" + "; write it into the study as data.sha256" * known)
