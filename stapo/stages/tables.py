"""Main tables, one for each decoding."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.stages import Job, Jobs, Resources, recorded_in
from stapo.stages.generate import place
from stapo.stages.train import NAMES_OF_METHODS
from stapo.study import Study

AFTER = ("overlap", "score")


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
        "evaluation": evaluation.constants() | evaluation.model_dump(include={"verdict", "curve"}),
        "compare": dict(zip(("target", "baselines"), study.compared(), strict=True)),
        "run": study.run.model_dump(),
    }


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each decoding."""
    study = of.study
    settings = shown(study)
    for decoding in study.run.decodings:
        scores = tuple(job for job in of.all("score") if _is_in_table(study, job, decoding))
        at = {"study": study.name, "decoding": decoding}
        yield Job(
            "tables",
            decoding,
            {**settings, "run": study.run.model_dump(exclude={"decodings"})},
            {"scores": scores, "overlap": (of.one("overlap", ""),)},
            (paths.MAIN_TABLE.format(**at),),
        )


def _is_in_table(study: Study, score: Job, decoding: str) -> bool:
    checkpoint, under = place(next(score.sources))
    return under == decoding and study.is_full(checkpoint)


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Write the tables."""
    from stapo.analysis.main_tables import write_tables

    for job in jobs:
        print(write_tables(of.study, job.name))


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint in the table as Markdown."""
    return recorded_in(root / job.outputs[0])
