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

DRAW: dict[str, Callable[[Artefacts, Iterable[str]], list[Path]]] = {
    "tables": lambda files, decodings: [write_tables(files, name) for name in decodings],
    "evidence": lambda files, _: [
        *(path for name in table_names(files.study) for path in write_evidence(files, name)),
        write_values(files),
    ],
    "figures": lambda files, _: [
        path for name in figure_names(files.study) for path in write_figure(files, name)
    ],
    "report": lambda files, _: [write_report(files)],
}
"""Stage -> from the files of a study and names of the stage's jobs to the files written."""
