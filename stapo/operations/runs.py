"""What `snakemake` says of a study before the first job and after the last one, beside its own messages."""

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from stapo import paths
from stapo.study import Study

NO_STUDY = (
    "none given; the smallest one takes minutes on two CPU cores:",
    "  snakemake --configfile workflows/studies/smoke.yaml",
    "your own: docs/extend.md; before a long run: stapo check STUDY, stapo plan STUDY, stapo doctor STUDY",
)


def tell(lines: Iterable[object]) -> None:
    """Print lines about a run to the standard error, after what Snakemake has printed there."""
    for line in lines:
        print(f"study: {line}", file=sys.stderr)  # noqa: T201


def profile_fault(arguments: Sequence[str], basedir: Path) -> str | None:
    """Return what is wrong with `--workflow-profile`, None if nothing is.

    Snakemake ignores a profile that does not exist: a run without its settings leaves a lock after a kill,
    and incomplete files that the next run refuses.

    Args:
        arguments: the command line of Snakemake.
        basedir: directory of the Snakefile.
    """
    option, places = "--workflow-profile", (Path(), Path("profiles"), basedir / "profiles")
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = [after for word, after in pairwise(words) if word == option and after != "none"]
    if not given or any((place / given[-1]).exists() for place in places):
        return None
    known = sorted(path.name for path in (basedir / "workflows" / "profiles").glob("*"))
    return f"{option}: no such profile: {given[-1]}; known: " + ", ".join(
        f"workflows/profiles/{name}" for name in known
    )


def first_lines(study: Study, file: str) -> list[str]:
    """Return what is made again and why, and where the progress of a run of a study file is."""
    from stapo.operations.status import outdated_lines, progress

    watch = f"logs: logs/{study.name}/; progress, in another terminal: stapo status {file}"
    return [*outdated_lines(progress(study)), watch]


def last_lines(study: Study, file: str, succeeded: bool) -> list[str]:
    """Return where the results of a run of a study file are, or how to find out what is left."""
    from stapo.operations.status import is_finished

    if not succeeded:
        return [
            f"not finished; what failed or was stopped: stapo status {file}; logs: logs/{study.name}/",
            "the same command continues",
        ]
    if not is_finished(study):
        return [f"made what was asked for; what is left: stapo status {file}"]
    found = {
        **paths.results_of(study),
        "show": f"stapo show {file}",
        "check": f"stapo verify {paths.RESULTS.format(study=study.name)}",
    }
    return [f"{study.name} is finished", *(f"  {what:8}{path}" for what, path in found.items())]
