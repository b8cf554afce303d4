"""Figures, as SVG, PDF and PNG."""

from collections.abc import Iterator

from stapo import paths
from stapo.exhibits import figure_names
from stapo.stages import Job, Jobs, Resources
from stapo.stages.evidence import all_results
from stapo.stages.tables import shown

AFTER = ("train", "intervene", "generate", "score", "tables")


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield the one job."""
    outputs = tuple(
        paths.FIGURE.format(study=of.study.name, figure=figure, suffix=suffix)
        for figure in figure_names(of.study)
        for suffix in paths.FIGURE_SUFFIXES
    )
    yield Job("figures", "", shown(of.study), all_results(of), outputs)


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Draw all figures."""
    from stapo.analysis.charts import write_figure

    for name in figure_names(of.study):
        print(*write_figure(of.study, name))
