"""Figures, as SVG, PDF and PNG."""

from collections.abc import Iterator

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.stages.evidence import all_results
from stapo.stages.tables import shown

AFTER = ("train", "intervene", "generate", "score", "tables")


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    yield Job("figures", "", shown(of.study), all_results(of), tuple(paths.figure_paths(of.study)))


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Draw all figures."""
    from stapo.analysis.draw import write_figure

    for name in paths.figure_names(of.study):
        print(*write_figure(of.study, name))
