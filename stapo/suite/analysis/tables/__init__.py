"""Tables of evidence: one file each, found by `stapo.suite.exhibits.declared`, and their writing."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from stapo.core.files import write
from stapo.suite import paths
from stapo.suite.analysis.artefacts import ALL, Artefacts
from stapo.suite.analysis.formats import Table, render
from stapo.suite.exhibits import declared
from stapo.suite.jobs import jobs_of

POOLED = f"Model `{ALL}`: base models, which differ only in their seed, take the place of seeds."


def evidence_table(artefacts: Artefacts, name: str) -> Table:
    """Return a table of evidence by its name."""
    table: Table = import_module(f"stapo.suite.analysis.tables.{name}").make(artefacts)
    pooled = [POOLED] * any(getattr(row, "model", None) == ALL for row in table.rows)
    return replace(table, notes=[*table.notes, *pooled])


def write_evidence(artefacts: Artefacts, name: str) -> list[Path]:
    """Write a table of evidence; equal results give equal bytes."""
    study, title = artefacts.study, declared("tables")[name].title
    table = evidence_table(artefacts, name)
    made_by = jobs_of(study).job("evidence").fingerprint
    written = []
    for suffix in paths.SUFFIXES:
        path = artefacts.root / paths.TABLE.format(study=study.name, table=name, suffix=suffix)
        written.append(write(path, render(table, suffix, f"{study.name}, {title}", made_by)))
    return written
