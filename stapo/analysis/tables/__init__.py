"""Tables of evidence: one file each, found by `stapo.exhibits.declared`, and their writing."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from stapo import paths
from stapo.analysis.artefacts import ALL, Artefacts
from stapo.analysis.table import Table, render
from stapo.exhibits import declared
from stapo.files import replace_file
from stapo.stages import jobs_of
from stapo.study import Study

POOLED = f"Size `{ALL}`: base models, which differ only in their seed, take the place of seeds."


def evidence_table(artefacts: Artefacts, name: str) -> Table:
    """Return a table of evidence by its name."""
    table: Table = import_module(f"stapo.analysis.tables.{name}").make(artefacts)
    pooled = [POOLED] * any(getattr(row, "size", None) == ALL for row in table.rows)
    return replace(table, notes=[*table.notes, *pooled])


def write_evidence(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write a table of evidence; equal results give equal bytes."""
    table, title = evidence_table(Artefacts(study, root), name), declared("tables")[name].title
    made_by = jobs_of(study).one("evidence", "").fingerprint
    written = []
    for suffix in paths.SUFFIXES:
        path = root / paths.TABLE.format(study=study.name, table=name, suffix=suffix)
        with replace_file(path) as stream:
            stream.write(render(table, suffix, f"{study.name}, {title}", made_by))
        written.append(path)
    return written
