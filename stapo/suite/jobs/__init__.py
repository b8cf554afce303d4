"""The jobs of a study: those of the stages in `STAGES` of each file here.

Rules of Snakemake, `stapo run`, `status`, `plan` and `verify` all ask them for names, paths and fingerprints.
Nothing here imports torch, pandas and the like, or does the work of a job.
"""

from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import iter_modules

from stapo.suite.job import Jobs, Stage
from stapo.suite.study import Study

REMEMBERED = 8
"""Studies whose jobs are kept."""
_recent: list[Jobs] = []


def _in_order() -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    for module in iter_modules(__path__):
        stages |= import_module(f"{__name__}.{module.name}").STAGES
    order = TopologicalSorter({name: stages[name].after for name in sorted(stages)})
    return {name: stages[name] for name in order.static_order()}


STAGES = _in_order()
"""All stages by name, each after those that it reads."""


def jobs_of(study: Study) -> Jobs:
    """Return the jobs of a study; the same object for the same study."""
    for jobs in _recent:
        if jobs.study is study:
            return jobs
    _recent[:] = [Jobs(study, STAGES), *_recent[: REMEMBERED - 1]]
    return _recent[0]
