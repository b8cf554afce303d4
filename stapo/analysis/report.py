"""The report: one self-contained HTML page with all results."""

import json
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.analysis import columns
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import chart_of, specification
from stapo.analysis.evidence.tokens import token_rows
from stapo.analysis.evidence_tables import evidence_table
from stapo.analysis.formats import template
from stapo.analysis.page import document, setting
from stapo.analysis.page.responses import response_choice
from stapo.analysis.paper_audit import audit_rows, audit_text, statements
from stapo.analysis.rows import AVERAGE, Comparison, MainTable, TableRow
from stapo.analysis.table import UNMEASURED, Column
from stapo.evaluation.statistics import Difference, Interval
from stapo.exhibits import FIGURES, TABLES, figure_names, table_names
from stapo.files import replace_file
from stapo.methods import Method
from stapo.stages import jobs_of
from stapo.stages.train import of_checkpoint
from stapo.study import Study
from stapo.study.files import named

SECTIONS = {
    "results": "Results",
    "verdicts": "The paper's claims",
    "paper": "Against the paper",
    "figures": "Figures",
    "evidence": "Tables of evidence",
    "tokens-heading": "Tokens",
    "responses-heading": "Responses",
    "setting": "Setting",
    "methods": "Methods",
    "cost": "Cost and provenance",
    "audit": "The paper's own numbers",
}
"""Anchor of a section -> its heading, in the order of the page."""
ELSEWHERE = ("verdicts", "hyperparameters")
"""Tables of evidence that other sections show."""
OF_VERDICTS = ("Claim", "Verdict", "Measured", "Reason, and what it rests on", "Size", "Revision")
"""Columns of the table of verdicts that fit on the page; the others are in its files."""
MANY_ROWS = 24
"""Longer tables of evidence are folded."""


def _selection(method: Method) -> str:
    words = named(method.selection) if method.is_own else method.selection.replace("_", " ")
    arguments = ", ".join(f"{name} {value}" for name, value in method.selection_args.items())
    return f"{words}: {arguments}" if arguments else words


METHODS: list[Column[Method]] = [
    Column("Method", lambda method: method.title, text=True),
    Column("Tokens", _selection, text=True),
    Column("Mean over", lambda method: method.aggregation.replace("_", " "), text=True),
    Column("Clip", lambda method: f"{method.clip_low} / {method.clip_high}"),
    Column("KL", lambda method: method.kl_coefficient, "g"),
    Column("Source", lambda method: method.source, text=True),
]


def _result_columns(table: MainTable) -> list[Column[TableRow]]:
    """Return the columns of the main table, with the average first and its comparisons beside it."""
    found, names = columns.accuracy(table), len(columns.named(table))
    average = next(column for column in found if column.heading == AVERAGE)
    known = {(one.target, one.size, one.baseline): one for one in table.comparisons}
    tests: list[Column[TableRow]] = []
    for target in dict.fromkeys(one.target for one in table.comparisons):

        def compared(row: TableRow, target: str = target) -> Comparison | None:
            return known.get((target, row.size, row.method))

        def difference(row: TableRow, of: Any = compared) -> str:
            return _points(one.difference) if (one := of(row)) else UNMEASURED

        def p_value(row: TableRow, of: Any = compared) -> float:
            return one.adjusted_p if (one := of(row)) else nan

        title = table.titles[target]
        tests.append(Column(f"p against {title}", p_value, ".4f"))
        tests.append(Column(f"{title} minus this [points]", difference, css="count"))
    rest = [column for column in found if column is not average]
    return [*rest[:names], average, *tests, *rest[names:]]


def _comparison_columns(table: MainTable) -> list[Column[Comparison]]:
    """Return the columns of the differences between methods."""
    titles = table.titles

    def names(one: Comparison) -> str:
        return f"{titles[one.target]} minus {titles[one.baseline]}"

    def further(one: Comparison, name: str) -> str:
        return _points(one.further[name])

    return [
        Column("Size", lambda one: one.size, text=True),
        Column("Difference", names, text=True),
        Column("Avg", lambda one: _points(one.difference), css="count"),
        *(
            Column[Comparison](f"Avg {name}", partial(further, name=name), css="count")
            for name in (table.comparisons[0].further if table.comparisons else ())
        ),
        Column("p (Holm)", lambda one: one.adjusted_p, ".4f"),
        Column("Questions", lambda one: one.difference.questions, "+.1f"),
        Column("Detectable [points]", lambda one: 100 * one.difference.detectable, ".2f"),
    ]


def _points(found: Difference | Interval) -> str:
    value, low, high = (100 * number for number in (found.value, found.low, found.high))
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def write_report(study: Study, root: Path = Path()) -> Path:
    """Write the report of a finished study."""
    page = render_report(study, root)
    path = root / paths.REPORT.format(study=study.name)
    with replace_file(path) as stream:
        stream.write(page)
    return path


def render_report(study: Study, root: Path = Path()) -> str:
    """Return the page; equal results give equal bytes."""
    artefacts = Artefacts(study, root)
    scripts = [document.vega(), document.script("report.js")]
    grids = {
        name: (TABLES[name].title, evidence_table(artefacts, name).noted())
        for name in table_names(study)
    }
    evidence = {name: one for name, one in grids.items() if name not in ELSEWHERE}
    tokens, numbers = token_rows(artefacts), _numbers(artefacts)
    responses, rule = response_choice(artefacts)
    empty = {
        "verdicts": "verdicts" not in grids,
        "paper": not any(one.cells or one.gains for one in numbers["against_paper"]),
        "evidence": not evidence,
        "tokens-heading": not tokens,
    }
    return template("report.html.j2").render(
        study=study,
        sections={anchor: title for anchor, title in SECTIONS.items() if not empty.get(anchor)},
        style=document.script("report.css"),
        policy=document.policy(scripts),
        scripts=scripts,
        decodings={name: study.decodings[name].title for name in study.run.decodings},
        figures=[_figure(artefacts, name) for name in figure_names(study)],
        grids=grids,
        evidence=evidence,
        many_rows=MANY_ROWS,
        of_verdicts=OF_VERDICTS,
        tokens=document.json_block(tokens) if tokens else None,
        responses=document.json_block(responses),
        responses_rule=rule,
        audit=audit_rows(),
        audit_text=audit_text(),
        said=statements(),
        **numbers,
    )


def _numbers(artefacts: Artefacts) -> dict[str, Any]:
    """Return tables, setting, cost and provenance."""
    study = artefacts.study
    scores = {name: artefacts.scores(name) for name in study.run.decodings}
    tables = [main_table(study, name, found) for name, found in scores.items()]
    first, costs = next(iter(scores.values())), setting.costs(artefacts)
    return {
        "tables": tables,
        "shared_notes": [n for n in tables[0].notes if all(n in one.notes for one in tables)],
        "against_paper": [compare(study, table) for table in tables],
        "command": setting.command(study),
        "made": setting.made(costs, first),
        "costs": costs,
        "total": setting.total(costs),
        "cost_columns": setting.COSTS,
        "methods": [study.method(name) for name in study.run.methods],
        "method_columns": METHODS,
        "result_columns": _result_columns,
        "comparison_columns": _comparison_columns,
        "made_by": jobs_of(study).one("report", "").fingerprint,
        "provenance": json.dumps(first.provenance, indent=1, sort_keys=True),
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
        "data": document.json_block(document.packed(found)),
        # Relative to the page.
        "files": {suffix: f"figures/{name}.{suffix}" for suffix in paths.FIGURE_SUFFIXES},
    }
