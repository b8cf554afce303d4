"""What `snakemake` says of a study before the first job and after the last one, beside its own messages."""

import sys
from collections.abc import Iterable

from stapo import paths
from stapo.study import Study

NO_STUDY = (
    "none given; the smallest one takes minutes on two CPU cores:",
    "  snakemake --configfile workflows/studies/smoke.yaml",
    "your own: docs/extend.md; before a long run: stapo check STUDY, stapo plan STUDY",
)


def tell(lines: Iterable[object]) -> None:
    """Print lines about a run to the standard error, after what Snakemake has printed there."""
    for line in lines:
        print(f"study: {line}", file=sys.stderr)  # noqa: T201


def first_lines(study: Study, file: str) -> list[str]:
    """Return what is made again and why, and where the progress of a run of a study file is."""
    from stapo.operations.status import outdated_lines, progress

    watch = f"logs: logs/{study.name}/; progress, in another terminal: stapo status {file}"
    return [*outdated_lines(progress(study)), watch]


def last_lines(study: Study, file: str, succeeded: bool) -> list[str]:
    """Return where the results of a run of a study file are, or how to find out what is left."""
    from stapo.operations.status import progress

    if not succeeded or any(one.state != "done" for one in progress(study)):
        left = f"not finished; what is left: stapo status {file}; logs: logs/{study.name}/"
        return [left, "the same command continues"]
    found = {
        **paths.results_of(study),
        "show": f"stapo show {file}",
        "check": f"stapo verify {paths.RESULTS.format(study=study.name)}",
    }
    return [f"{study.name} is finished", *(f"  {what:8}{path}" for what, path in found.items())]
