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

from stapo import paths
from stapo.analysis import main_tables
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import chart_of, specification
from stapo.analysis.comparison import main_table
from stapo.analysis.table import SIZE, TEMPLATES, Column, Table, template
from stapo.analysis.tables import evidence_table
from stapo.exhibits import FIGURES, TABLES, figure_names, table_names
from stapo.files import read_json, replace_file
from stapo.stages import jobs_of
from stapo.study import Study, TrainingRun

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
COSTS = {
    "seconds": ("Wall time [h]", 1 / 3600),
    "gpu_seconds": ("GPU-hours", 1 / 3600),
    "joules": ("Energy of the GPUs [kWh]", 1 / 3_600_000),
}
"""Field of the record of a training -> heading and unit of its column."""
MADE = ("commit", "dirty", "processor", "gpus")
"""What is shown of the environment of a training; its `provenance.json` has all."""


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
    scripts = [vega(), script("report.js")]
    grids = {
        name: (TABLES[name].title, evidence_table(artefacts, name)) for name in table_names(study)
    }
    evidence = {name: one for name, one in grids.items() if name not in ELSEWHERE}
    numbers = _numbers(artefacts)
    empty = {
        "verdicts": "verdicts" not in grids,
        "paper": not any(numbers["against_paper"]),
        "evidence": not evidence,
    }
    return template("report.html.j2").render(
        study=study,
        sections={anchor: title for anchor, title in SECTIONS.items() if not empty.get(anchor)},
        style=script("report.css"),
        policy=policy(scripts),
        scripts=scripts,
        decodings={name: study.decodings[name].title for name in study.run.decodings},
        figures=[_figure(artefacts, name) for name in figure_names(study)],
        grids=grids,
        evidence=evidence,
        many_rows=MANY_ROWS,
        of_verdicts=OF_VERDICTS,
        columns=main_tables,
        **numbers,
    )


def _numbers(artefacts: Artefacts) -> dict[str, Any]:
    """Return tables, setting, cost and provenance."""
    study = artefacts.study
    places = artefacts.of_runs(
        lambda run: artefacts.root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
    )
    found = {run: read_json(path) if path.exists() else {} for run, path in places.items()}
    scores = {name: artefacts.scores(name) for name in study.run.decodings}
    tables = [main_table(study, name, one) for name, one in scores.items()]
    environments = [record.get("environment", {}) for record in found.values()]
    made = {json.dumps({k: e.get(k) for k in MADE}, sort_keys=True) for e in environments}
    about = {
        "trainings": [json.loads(one) for one in sorted(made)],
        "scores": next(iter(scores.values())).provenance,
    }
    return {
        "tables": tables,
        "against_paper": [compare(study, table) for table in tables],
        "costs": costs(study, found),
        "made_by": jobs_of(study).one("report", "").fingerprint,
        "provenance": json.dumps(about, indent=1, sort_keys=True),
    }


def _figure(artefacts: Artefacts, name: str) -> dict[str, Any]:
    """Return a figure as the template shows it."""
    found = specification(chart_of(artefacts, name))
    return {
        "name": name,
        "title": FIGURES[name].title,
        "caption": found.get("description", ""),
        "data": json_block(found),
        # Relative to the page.
        "files": {suffix: f"figures/{name}.{suffix}" for suffix in paths.FIGURE_SUFFIXES},
    }


def costs(study: Study, found: dict[TrainingRun, dict[str, Any]]) -> Table:
    """Return the table of what each training cost, by its record."""

    def column(field: str, heading: str, unit: float) -> Column[TrainingRun]:
        def value(run: TrainingRun) -> float:
            known = found[run].get(field)
            return nan if known is None else unit * known

        return Column(heading, value, ",.2f")

    return Table(
        columns=[
            SIZE,
            Column("Method", lambda run: study.title(run.method), text=True),
            Column("Seed", lambda run: run.seed),
            *(column(field, *of) for field, of in COSTS.items()),
        ],
        rows=[*found],
        caption="What each training cost. Time and energy of the evaluations are not recorded.",
    )


def script(name: str) -> Markup:
    """Return a script of the templates, to stand between script tags."""
    return Markup((TEMPLATES / name).read_text())


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
    hashes = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in sums)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(value: Any) -> Markup:
    """Return a value as JSON to stand between script tags: without `<`, which could end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
