"""Draws what a finished study shows."""

from collections.abc import Callable, Iterable
from pathlib import Path

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import write_figure
from stapo.suite.analysis.main_tables import write_tables
from stapo.suite.analysis.report import write_report
from stapo.suite.analysis.tables import write_evidence
from stapo.suite.analysis.values import write_values
from stapo.suite.exhibits import figure_names, table_names
from stapo.suite.study import Study


def _tables(study: Study, decodings: Iterable[str], root: Path) -> list[Path]:
    return [write_tables(study, decoding, root) for decoding in decodings]


def _evidence(study: Study, _: Iterable[str], root: Path) -> list[Path]:
    artefacts = Artefacts(study, root)
    tables = [path for name in table_names(study) for path in write_evidence(artefacts, name)]
    return [*tables, write_values(artefacts)]


def _figures(study: Study, _: Iterable[str], root: Path) -> list[Path]:
    artefacts = Artefacts(study, root)
    return [path for name in figure_names(study) for path in write_figure(artefacts, name)]


def _report(study: Study, _: Iterable[str], root: Path) -> list[Path]:
    return [write_report(study, root)]


DRAW: dict[str, Callable[[Study, Iterable[str], Path], list[Path]]] = {
    "tables": _tables,
    "evidence": _evidence,
    "figures": _figures,
    "report": _report,
}
"""Stage -> from a study, names of the stage's jobs and where its results are to the files written."""
