"""Comparison with the paper's numbers: those of each revision with our results of that revision's method."""

from collections.abc import Iterator
from dataclasses import dataclass

from stapo.analysis.comparison import AVERAGE, MainTable, headline
from stapo.evaluation.statistics import Interval
from stapo.methods import BASELINES, METHODS
from stapo.reference import paper, stated_averages
from stapo.study import Study
from stapo.study.sources import HubModel


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A cell of the main table or a gain over the strongest baseline, here and in the paper, in percent."""

    revision: str
    """Revision of the paper."""
    size: str
    """Size, or `mean` for the mean over the sizes."""
    title: str
    """Title of the method."""
    what: str
    """Column of the table; of a gain, whether the paper states it or it is computed from stated averages."""
    ours: float
    paper: float
    changed: str
    """The study's changes of the compared methods; empty without changes."""
    interval: Interval | None = None
    """95 % interval of ours; None where only the value is known. The paper states none."""

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours - self.paper


@dataclass(frozen=True)
class AgainstPaper:
    """The comparison with the paper that is printed with the table of one decoding."""

    cells: list[Compared]
    gains: list[Compared]
    notes: list[str]


def compare(study: Study, table: MainTable) -> AgainstPaper:
    """Return the paper's numbers for the cells and gains of a table."""
    return AgainstPaper([*_cells(study, table)], [*_gains(study, table)], [*_notes(study, table)])


def is_papers(study: Study, size: str) -> bool:
    """Return whether the model of a size is the paper's base model, and not a test model or another model."""
    model = study.models[size]
    return isinstance(model, HubModel) and model.hub == paper()["models"].get(size)


def has_papers_average(study: Study) -> bool:
    """Return whether Avg is the mean over the paper's benchmarks, so that it can be compared."""
    return set(study.run.benchmarks) == set(paper()["benchmarks"])


def changed(study: Study, name: str) -> str:
    """Return the study's changes of a method of the paper, as text of its source; empty without changes."""
    known, own = METHODS[name].source, study.method(name).source
    return own.removeprefix(known).removeprefix("; ")


def _cells(study: Study, table: MainTable) -> Iterator[Compared]:
    reference = paper()["table"]
    for row in table.rows:
        stated = reference.get(table.decoding, {}).get(row.size, {}).get(row.method)
        if stated is None or not is_papers(study, row.size):
            continue
        for column, value in zip([*paper()["benchmarks"], AVERAGE], stated, strict=True):
            if column in row.cells and (column != AVERAGE or has_papers_average(study)):
                yield Compared(
                    revision=reference["revision"],
                    size=row.size,
                    title=row.title,
                    what=column,
                    ours=row.cells[column].value,
                    paper=value,
                    changed=changed(study, row.method),
                    interval=row.cells[column],
                )


def _gains(study: Study, table: MainTable) -> Iterator[Compared]:
    """Yield the gains of each revision's method over the paper's three baselines."""
    run, sizes = study.run, [size for size in study.run.sizes if is_papers(study, size)]
    if not has_papers_average(study) or not set(BASELINES) <= set(run.methods):
        return
    for revision, stated in paper()["headline"].items():
        method, means = stated["method"], stated["means"]
        if method not in run.methods or table.decoding not in means:
            continue
        if not (ours := headline({size: table.values[size] for size in sizes}, method, BASELINES)):
            continue
        basis, gains = "stated", stated.get("gains", {}).get(table.decoding, {})
        if not gains and revision == paper()["table"]["revision"]:
            known = headline(stated_averages(table.decoding), method, BASELINES)
            basis, gains = "from the stated averages", known.gains if known else {}
        found = [(size, ours.gains[size], gains[size], basis) for size in sizes if size in gains]
        if set(sizes) == set(paper()["models"]):
            found.append(("mean", ours.mean, means[table.decoding], "stated"))
        changes = {name: changed(study, name) for name in (method, *BASELINES)}
        about = "; ".join(f"{table.titles[name]} {what}" for name, what in changes.items() if what)
        for size, our, their, origin in found:
            yield Compared(
                revision=revision,
                size=size,
                title=table.titles[method],
                what=origin,
                ours=our,
                paper=their,
                changed=about,
            )


def _notes(study: Study, table: MainTable) -> Iterator[str]:
    """Yield why a method of the paper has no cells to compare with."""
    if not any(is_papers(study, size) for size in study.run.sizes):
        return
    for revision, stated in paper()["headline"].items():
        if revision != paper()["table"]["revision"] and stated["method"] in study.run.methods:
            title = table.titles[stated["method"]]
            yield f"{title}: the table of {revision} is not known, only its gains are."
