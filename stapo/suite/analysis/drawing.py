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


def _tables(study: Study, decodings: Iterable[str]) -> list[Path]:
    return [write_tables(study, decoding) for decoding in decodings]


def _evidence(study: Study, _: Iterable[str]) -> list[Path]:
    artefacts = Artefacts(study)
    tables = [path for name in table_names(study) for path in write_evidence(artefacts, name)]
    return [*tables, write_values(artefacts)]


def _figures(study: Study, _: Iterable[str]) -> list[Path]:
    artefacts = Artefacts(study)
    return [path for name in figure_names(study) for path in write_figure(artefacts, name)]


def _report(study: Study, _: Iterable[str]) -> list[Path]:
    return [write_report(study)]


DRAW: dict[str, Callable[[Study, Iterable[str]], list[Path]]] = {
    "tables": _tables,
    "evidence": _evidence,
    "figures": _figures,
    "report": _report,
}
"""Stage -> from a study and the names of the stage's jobs to the files written."""
