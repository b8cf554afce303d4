"""The report: one self-contained HTML page with all results, and its security policy."""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from math import nan
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stapo.core.files import read_json, write
from stapo.suite import paths
from stapo.suite.analysis import main_rendering
from stapo.suite.analysis.against_paper import compare_with_paper
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import chart_of, specification
from stapo.suite.analysis.formats import MODEL, TEMPLATES, Column, Table, template
from stapo.suite.analysis.main_table import seed_notes
from stapo.suite.analysis.tables import evidence_table
from stapo.suite.analysis.tables.endpoints import primary_texts
from stapo.suite.exhibits import FIGURES, TABLES, figure_names, table_names
from stapo.suite.jobs import jobs_of
from stapo.suite.study import TrainingRun

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
MADE = ("commit", "dirty", "processor", "gpus")
"""What is shown of the environment of a training; its `provenance.json` has all."""
LEADING = ("pareto", "entropy", "reward")
"""Figures that stand beside the main table."""


def write_report(artefacts: Artefacts) -> Path:
    """Write the report of a finished study."""
    path = artefacts.root / paths.REPORT.format(study=artefacts.study.name)
    return write(path, render_report(artefacts))


def render_report(artefacts: Artefacts) -> str:
    """Return the page; equal results give equal bytes."""
    study, scripts = artefacts.study, [vega(), script("report.js")]
    tables = main_rendering.tables_of(artefacts)
    against_paper = [*map(compare_with_paper, tables)]
    figures = [_figure(artefacts, name) for name in figure_names(study)]
    grids = {n: (TABLES[n].title, evidence_table(artefacts, n)) for n in table_names(study)}
    evidence = {n: grid for n, grid in grids.items() if n != "verdicts" and grid[1].rows}
    provenance = artefacts.scores(study.run.decodings[0]).provenance
    shown = {
        "verdicts": "verdicts" in grids,
        "paper": any(against_paper),
        "figures": {figure["name"] for figure in figures} - {*LEADING},
        "evidence": evidence,
    }
    return template("report.html.j2").render(
        study=study,
        sections={anchor: title for anchor, title in SECTIONS.items() if shown.get(anchor, True)},
        style=script("report.css"),
        policy=policy(scripts),
        scripts=scripts,
        decodings={name: study.decodings[name].title for name in study.run.decodings},
        seed_notes=seed_notes(study),
        primary=primary_texts(artefacts),
        tables=tables,
        against_paper=against_paper,
        figures=figures,
        leading=LEADING,
        grids=grids,
        evidence=evidence,
        columns=main_rendering,
        costs=costs(artefacts),
        made_by=jobs_of(study).job("report").fingerprint,
        provenance=json.dumps(provenance, indent=1, sort_keys=True),
    )


def _figure(artefacts: Artefacts, name: str) -> dict[str, Any]:
    spec = specification(chart_of(artefacts, name))
    return {
        "name": name,
        "title": FIGURES[name].title,
        "caption": spec.get("description", ""),
        "data": json_block(spec | {"datasets": _columns(spec.get("datasets", {}))}),
        "panels": len(spec.get("concat", [])),
        # Relative to the page.
        "files": {suffix: f"figures/{name}.{suffix}" for suffix in paths.FIGURE_SUFFIXES},
    }


def _columns(datasets: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, list[Any]]]:
    """Return the rows of data sets as columns, which take half the room: the page makes rows of them."""
    return {
        name: {field: [row[field] for row in rows] for field in (rows[0] if rows else ())}
        for name, rows in datasets.items()
    }


def costs(artefacts: Artefacts) -> Table:
    """Return the table of what made each training and what it cost, by its record."""
    study = artefacts.study

    def record(run: TrainingRun) -> dict[str, Any]:
        path = artefacts.root / paths.RUN_PROVENANCE.format(study=study.name, **run._asdict())
        return read_json(path) if path.exists() else {}

    def cost(heading: str, field: str, unit: float) -> Column[TrainingRun]:
        # Without a GPU, there is no number of its hours.
        return Column(heading, lambda run: (records[run].get(field) or nan) / unit, ",.2f")

    def made_by(run: TrainingRun) -> str:
        environment = dict(records[run].get("environment", {}))
        environment["commit"] = (environment.get("commit") or "")[:12]
        return "; ".join(f"{key} {environment[key]}" for key in MADE if environment.get(key))

    records = artefacts.of_runs(record)
    return Table(
        columns=[
            MODEL,
            Column("Method", lambda run: study.title(run.method), text=True),
            Column("Seed", lambda run: run.seed),
            cost("Wall time [h]", "seconds", 3600),
            cost("GPU-hours", "gpu_seconds", 3600),
            cost("Energy of the GPUs [kWh]", "joules", 3_600_000),
            Column("Made by", made_by, text=True),
        ],
        rows=[*records],
        caption="What each training cost. Time and energy of the evaluations are not recorded.",
    )


def script(name: str) -> Markup:
    """Return a script of the templates, to stand between script tags."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


@cache
def vega() -> Markup:
    """Return Vega, Vega-Lite and vegaEmbed, to stand between script tags."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def policy(scripts: Iterable[str]) -> str:
    """Return the Content-Security-Policy of a page: only these scripts run, and nothing is fetched.

    vegaEmbed sets styles of elements.
    """
    sums = [hashlib.sha256(text.encode()).digest() for text in scripts]
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in sums)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(value: Any) -> Markup:
    """Return a value as JSON to stand between script tags: without `<`, which could end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
