"""The report: one self-contained HTML page with all results."""

import json
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.analysis import page
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import main_table
from stapo.analysis.costs import COSTS, costs, total
from stapo.analysis.draw import chart_of, specification
from stapo.analysis.formats import template
from stapo.analysis.rows import Comparison, MainTable
from stapo.analysis.table import Column
from stapo.analysis.tables import evidence_table
from stapo.evaluation.statistics import Difference
from stapo.exhibits import FIGURES, TABLES, figure_names, table_names
from stapo.files import replace_file
from stapo.stages import jobs_of
from stapo.stages.train import of_checkpoint
from stapo.study import Study

SECTIONS = {
    "results": "Results",
    "verdicts": "The paper's claims",
    "paper": "Against the paper",
    "figures": "Figures",
    "evidence": "Tables of evidence",
    "setting": "Setting and methods",
    "cost": "Cost and provenance",
}
"""Anchor of a section -> its heading, in the order of the page."""
ELSEWHERE = ("verdicts", "hyperparameters")
"""Tables of evidence that other sections show."""
OF_VERDICTS = ("Claim", "Verdict", "Measured", "Reason, and what it rests on", "Size", "Revision")
"""Columns of the table of verdicts that fit on the page; the others are in its files."""
MANY_ROWS = 24
"""Longer tables of evidence are folded."""


def _comparison_columns(table: MainTable) -> list[Column[Comparison]]:
    """Return the columns of the differences between methods."""
    titles = table.titles

    def names(one: Comparison) -> str:
        return f"{titles[one.target]} minus {titles[one.baseline]}"

    return [
        Column("Size", lambda one: one.size, text=True),
        Column("Difference", names, text=True),
        Column("Avg", lambda one: _points(one.difference), css="count"),
        Column("p (Holm)", lambda one: one.adjusted_p, ".4f"),
        Column("Questions", lambda one: one.difference.questions, "+.1f"),
        Column("Detectable [points]", lambda one: 100 * one.difference.detectable, ".2f"),
    ]


def _points(found: Difference) -> str:
    value, low, high = (100 * number for number in (found.value, found.low, found.high))
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def write_report(study: Study, root: Path = Path()) -> Path:
    """Write the report of a finished study."""
    text = render_report(study, root)
    path = root / paths.REPORT.format(study=study.name)
    with replace_file(path) as stream:
        stream.write(text)
    return path


def render_report(study: Study, root: Path = Path()) -> str:
    """Return the page; equal results give equal bytes."""
    artefacts = Artefacts(study, root)
    scripts = [page.vega(), page.script("report.js")]
    grids = {
        name: (TABLES[name].title, evidence_table(artefacts, name)) for name in table_names(study)
    }
    evidence = {name: one for name, one in grids.items() if name not in ELSEWHERE}
    numbers = _numbers(artefacts)
    empty = {
        "verdicts": "verdicts" not in grids,
        "paper": not any(one.cells or one.gains for one in numbers["against_paper"]),
        "evidence": not evidence,
    }
    return template("report.html.j2").render(
        study=study,
        sections={anchor: title for anchor, title in SECTIONS.items() if not empty.get(anchor)},
        style=page.script("report.css"),
        policy=page.policy(scripts),
        scripts=scripts,
        decodings={name: study.decodings[name].title for name in study.run.decodings},
        figures=[_figure(artefacts, name) for name in figure_names(study)],
        grids=grids,
        evidence=evidence,
        many_rows=MANY_ROWS,
        of_verdicts=OF_VERDICTS,
        **numbers,
    )


def _numbers(artefacts: Artefacts) -> dict[str, Any]:
    """Return tables, setting, cost and provenance."""
    study, found = artefacts.study, costs(artefacts)
    scores = {name: artefacts.scores(name) for name in study.run.decodings}
    tables = [main_table(study, name, one) for name, one in scores.items()]
    made = {json.dumps(cost.made, sort_keys=True) for cost in found}
    about = {
        "trainings": [json.loads(one) for one in sorted(made)],
        "scores": next(iter(scores.values())).provenance,
    }
    return {
        "tables": tables,
        "shared_notes": [n for n in tables[0].notes if all(n in one.notes for one in tables)],
        "against_paper": [compare(study, table) for table in tables],
        "costs": found,
        "total": total(found),
        "cost_columns": COSTS,
        "methods": [study.method(name) for name in study.run.methods],
        "comparison_columns": _comparison_columns,
        "made_by": jobs_of(study).one("report", "").fingerprint,
        "provenance": json.dumps(about, indent=1, sort_keys=True),
        "fingerprints": {
            str(checkpoint): of_checkpoint(jobs_of(study), checkpoint).fingerprint
            for checkpoint in filter(study.is_full, study.checkpoints())
        },
    }


def _figure(artefacts: Artefacts, name: str) -> dict[str, Any]:
    """Return a figure as the template shows it."""
    found = specification(chart_of(artefacts, name))
    return {
        "name": name,
        "title": FIGURES[name].title,
        "caption": found.get("description", ""),
        "data": page.json_block(found),
        # Relative to the page.
        "files": {suffix: f"figures/{name}.{suffix}" for suffix in paths.FIGURE_SUFFIXES},
    }
