"""Draws what a finished study shows."""

from collections.abc import Callable, Iterable
from pathlib import Path

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import write_figure
from stapo.suite.analysis.main_rendering import write_tables
from stapo.suite.analysis.report import write_report
from stapo.suite.analysis.tables import write_evidence
from stapo.suite.analysis.values import write_values
from stapo.suite.exhibits import figure_names, table_names
from stapo.suite.study import Study


def _evidence(study: Study, _: Iterable[str], root: Path) -> list[Path]:
    artefacts = Artefacts(study, root)
    tables = [path for name in table_names(study) for path in write_evidence(artefacts, name)]
    return [*tables, write_values(artefacts)]


def _figures(study: Study, _: Iterable[str], root: Path) -> list[Path]:
    artefacts = Artefacts(study, root)
    return [path for name in figure_names(study) for path in write_figure(artefacts, name)]


def _tables(study: Study, decodings: Iterable[str], root: Path) -> list[Path]:
    artefacts = Artefacts(study, root)
    return [write_tables(artefacts, decoding) for decoding in decodings]


DRAW: dict[str, Callable[[Study, Iterable[str], Path], list[Path]]] = {
    "tables": _tables,
    "evidence": _evidence,
    "figures": _figures,
    "report": lambda study, _, root: [write_report(Artefacts(study, root))],
}
"""Stage -> from a study, names of the stage's jobs and where its results are to the files written."""
