"""Comparison with the paper's table: its cells beside ours of the same revision's method.

Its stated gains are claims: see `stapo.suite.analysis.tables.verdicts`.
"""

from typing import NamedTuple

from stapo.core.methods import METHODS
from stapo.suite.analysis.main_table import MainTable
from stapo.suite.evaluation.statistics import AVERAGE, Interval
from stapo.suite.reference import paper
from stapo.suite.study import Study
from stapo.suite.study.sources import PretrainedHubModel


class PaperComparison(NamedTuple):
    """A cell of the main table, here and in the paper, in percent."""

    revision: str
    model: str
    title: str
    what: str
    """Column of the table."""
    ours: Interval
    """With its 95 % interval; the paper states none."""
    paper: float
    changed: str
    """The study's changes of the method; empty without changes."""


def compare_with_paper(table: MainTable) -> list[PaperComparison]:
    """Return the cells of a table that the paper's table has too."""
    study, reference, comparisons = table.study, paper()["table"], []

    def is_comparable(column: str) -> bool:
        return has_papers_average(study) if column == AVERAGE else study.is_whole(column)

    for row in table.rows:
        stated = reference.get(table.decoding, {}).get(row.model, {}).get(row.method)
        if stated is None or not is_papers(study, row.model):
            continue
        for column, value in zip([*paper()["benchmarks"], AVERAGE], stated, strict=True):
            if column in row.cells and is_comparable(column):
                labels = reference["revision"], row.model, row.title, column
                numbers, changes = (row.cells[column], value), changed(study, row.method)
                comparisons.append(PaperComparison(*labels, *numbers, changes))
    return comparisons


def is_papers(study: Study, model: str) -> bool:
    """Return whether a model is the paper's base model, and not a test model or another model."""
    source = study.models[model]
    if not isinstance(source, PretrainedHubModel) or source.supervised:
        return False
    return bool(source.hub == paper()["models"].get(model))


def has_papers_average(study: Study) -> bool:
    """Return whether Avg is the mean over the paper's benchmarks, so that it can be compared."""
    names = study.run.benchmarks
    return {*names} == {*paper()["benchmarks"]} and all(map(study.is_whole, names))


def changed(study: Study, name: str) -> str:
    """Return the study's changes of a method of the paper, as text of its source; empty without changes."""
    known, source = METHODS[name].source, study.method(name).source
    return source.removeprefix(known).removeprefix("; ")
