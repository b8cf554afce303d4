"""The report: one self-contained HTML page with all results, and its security policy."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stapo import paths
from stapo.analysis import main_tables
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import chart_of, specification
from stapo.analysis.table import METHOD, SIZE, TEMPLATES, Column, template
from stapo.analysis.tables import evidence_table
from stapo.exhibits import FIGURES, TABLES, figure_names, table_names
from stapo.files import read_json, replace_file
from stapo.stages import jobs_of
from stapo.stages.weights import of_checkpoint
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
UNMEASURED = "unmeasured"
HOUR, KWH = 1 / 3600, 1 / 3_600_000
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
        "paper": not any(one.cells or one.gains for one in numbers["against_paper"]),
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
        cost_columns=COSTS,
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
        "methods": [study.method(name) for name in study.run.methods],
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
        "data": json_block(found),
        # Relative to the page.
        "files": {suffix: f"figures/{name}.{suffix}" for suffix in paths.FIGURE_SUFFIXES},
    }


@dataclass(frozen=True)
class Cost:
    """What one training cost."""

    size: str
    title: str
    seed: int
    record: Mapping[str, Any]
    """What the training recorded of itself; empty if it did not."""

    @property
    def made(self) -> dict[str, Any]:
        """Code and machine of the training."""
        found: Mapping[str, Any] = self.record.get("environment", {})
        return {name: found.get(name) for name in MADE}


def costs(artefacts: Artefacts) -> list[Cost]:
    """Return what each training cost."""
    study, found = artefacts.study, []
    for run in study.runs():
        path = artefacts.root / paths.RUN_PROVENANCE.format(study=study.name, **run.wildcards)
        record = read_json(path) if path.exists() else {}
        found.append(Cost(run.size, study.method(run.method).title, run.seed, record))
    return found


def _measured(heading: str, field: str, form: str, unit: float = 1) -> Column[Cost]:
    return Column(heading, lambda cost: _number(form, cost.record.get(field), unit))


def _number(form: str, value: float | None, unit: float = 1) -> str:
    return UNMEASURED if value is None else format(unit * value, form)


COSTS: list[Column[Cost]] = [
    SIZE,
    METHOD,
    Column("Seed", lambda cost: cost.seed),
    _measured("Wall time [s]", "seconds", ",.0f"),
    _measured("GPU-hours", "gpu_seconds", ",.2f", HOUR),
    _measured("Energy [kWh]", "joules", ",.2f", KWH),
]


def total(found: Sequence[Cost]) -> str:
    """Return what all trainings cost together, as a sentence; unmeasured if a part is."""

    def together(name: str, unit: float) -> str:
        known = [one for cost in found if (one := cost.record.get(name)) is not None]
        return _number(",.2f", sum(known) if len(known) == len(found) else None, unit)

    return (
        f"All trainings together: {together('seconds', HOUR)} hours of wall time, "
        f"{together('gpu_seconds', HOUR)} GPU-hours, {together('joules', KWH)} kWh of the GPUs."
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
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def json_block(value: Any) -> Markup:
    """Return a value as JSON to stand between script tags: without `<`, which could end the script."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
