"""Ours beside what the paper prints, each revision's numbers beside that revision's method only."""

from collections.abc import Iterator
from dataclasses import dataclass

from stapo.analysis.comparison import headline
from stapo.analysis.paper_audit import said, stated_headline
from stapo.analysis.rows import AVERAGE, MainTable
from stapo.methods import BASELINES, METHODS, TARGETS
from stapo.reference import confidence, paper
from stapo.study import Study
from stapo.study.schema import HubModel


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A number of ours that the paper has too, in percent."""

    revision: str
    """Of the paper."""
    title: str
    """Of the method."""
    ours: float
    paper: float
    changed: str
    """What the study changed in the methods that it is about; empty where nothing."""

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours - self.paper


@dataclass(frozen=True, kw_only=True)
class ComparedCell(Compared):
    """A cell of the main table."""

    size: str
    column: str


@dataclass(frozen=True, kw_only=True)
class ComparedGain(Compared):
    """A relative gain over the strongest baseline."""

    where: str
    """A size, or the mean over the sizes."""
    basis: str
    """Whether the paper states it, or its averages give it."""


@dataclass(frozen=True)
class BaseModel:
    """What a base model's authors publish of it, and our row of it, in percent."""

    size: str
    hub: str
    published: dict[str, float]
    """By benchmark, under another protocol than ours."""
    ours: dict[str, float]
    """Of the nearest benchmark of ours, by the name of theirs."""


@dataclass(frozen=True)
class AgainstPaper:
    """Everything that is printed beside the table of one decoding."""

    cells: list[ComparedCell]
    gains: list[ComparedGain]
    bases: list[BaseModel]
    base_protocol: str
    beside: dict[str, str]
    """Benchmark of theirs to the nearest one of ours."""
    claims: list[str]
    """What the revision says of what this study varies."""
    notes: list[str]


def compare(study: Study, table: MainTable) -> AgainstPaper:
    """Return what the paper and the base models' authors print of what is in a table."""
    reference = paper()["base"]
    return AgainstPaper(
        cells=list(_cells(study, table)),
        gains=list(_gains(study, table)),
        bases=list(_bases(study, table)),
        base_protocol=(
            f"{reference['source']} [{confidence(reference['confidence'])}]; {reference['protocol']}: "
            "another protocol, not comparable digit by digit"
        ),
        beside=reference["beside"],
        claims=claims_of(study),
        notes=list(_notes(study, table)),
    )


def _is_papers(study: Study, size: str) -> bool:
    """Return whether a size of the study is the paper's base model, whatever it is called.

    A model built for tests is no stand-in for it, and another model of the same size neither.
    """
    model = study.models[size]
    return isinstance(model, HubModel) and model.hub == paper()["models"].get(size)


def _has_papers_average(study: Study) -> bool:
    """Return whether Avg is over the paper's benchmarks: over others it is another quantity."""
    return set(study.run.benchmarks) == set(paper()["benchmarks"])


def _changed(study: Study, name: str) -> str:
    """Return what the study changed in a method of the paper, as its source says; empty where nothing."""
    known, own = METHODS[name].source, study.method(name).source
    return own.removeprefix(known).removeprefix("; ")


def _cells(study: Study, table: MainTable) -> Iterator[ComparedCell]:
    reference = paper()["table"]
    for row in table.rows:
        stated = reference.get(table.decoding, {}).get(row.size, {}).get(row.method)
        if stated is None or not _is_papers(study, row.size):
            continue
        columns = dict(zip([*paper()["benchmarks"], AVERAGE], stated, strict=True))
        if not _has_papers_average(study):
            columns.pop(AVERAGE)
        for column, value in columns.items():
            if column in row.cells:
                yield ComparedCell(
                    revision=reference["revision"],
                    size=row.size,
                    title=row.title,
                    column=column,
                    ours=row.cells[column].value,
                    paper=value,
                    changed=_changed(study, row.method),
                )


def _gains(study: Study, table: MainTable) -> Iterator[ComparedGain]:
    """Yield each revision's gains, of its own method over the paper's three baselines."""
    run = study.run
    if not _has_papers_average(study) or not set(BASELINES) <= set(run.methods):
        return
    sizes = [size for size in run.sizes if _is_papers(study, size)]
    for revision, stated in paper()["headline"].items():
        method = stated["method"]
        means = stated["means"]
        if method not in run.methods or table.decoding not in means or not sizes:
            continue
        ours = headline({size: table.values[size] for size in sizes}, method, BASELINES)
        if ours is None:
            continue
        basis, gains = "stated", stated.get("gains", {}).get(table.decoding, {})
        if not gains and (from_table := stated_headline(revision, table.decoding)):
            basis, gains = "from the stated averages", from_table.gains
        changed = {name: _changed(study, name) for name in (method, *BASELINES)}
        about = "; ".join(f"{table.titles[name]} {what}" for name, what in changed.items() if what)
        found = [(size, ours.gains[size], gains[size], basis) for size in sizes if size in gains]
        if set(sizes) == set(paper()["models"]):
            found.append(("mean", ours.mean, means[table.decoding], "stated"))
        for where, our, their, origin in found:
            yield ComparedGain(
                revision=revision,
                title=table.titles[method],
                where=where,
                ours=our,
                paper=their,
                basis=origin,
                changed=about,
            )


def _bases(study: Study, table: MainTable) -> Iterator[BaseModel]:
    reference = paper()["base"]
    rows = {row.size: row for row in table.rows if row.method == "base"}
    for size in study.run.sizes:
        model = study.models[size]
        if isinstance(model, HubModel) and model.hub in reference["models"] and size in rows:
            ours = {
                theirs: rows[size].cells[name].value
                for theirs, name in reference["beside"].items()
                if name in rows[size].cells
            }
            yield BaseModel(size, model.hub, reference["models"][model.hub], ours)


def claims_of(study: Study) -> list[str]:
    """Return what a revision says of what is varied around its method here.

    A study varies the selection if it runs another one of rare tokens beside the revision's method, and a
    setting if it runs the same selection with another value. The other revision's method is no variation.
    """
    found = []
    for one in paper()["claims"]:
        name, varied = paper()["headline"][one["revision"]]["method"], one["varies"]
        if name not in study.run.methods:
            continue
        own, strangers = study.method(name), {*TARGETS} - {name}
        others = [
            study.method(other)
            for other in study.run.methods
            if study.origin_of(other) not in strangers
        ]
        if varied == "selection":
            values = {str(m.selection) for m in others if "tau_p" in m.selection_args}
        else:
            alike = [m for m in others if m.selection == own.selection]
            values = {str(m.selection_args.get(varied)) for m in alike}
        if len(values) > 1:
            found.append(said(one))
    return found


def _notes(study: Study, table: MainTable) -> Iterator[str]:
    """Yield why a method of the paper has no cells to stand beside."""
    if not any(_is_papers(study, size) for size in study.run.sizes):
        return
    for revision, stated in paper()["headline"].items():
        if revision != paper()["table"]["revision"] and stated["method"] in study.run.methods:
            title = table.titles[stated["method"]]
            yield f"{title}: the table of {revision} is not known, only its gains are."
