"""Writing of the tables of evidence, one file each in `stapo.analysis.tables`."""

from importlib import import_module
from pathlib import Path

from stapo import paths
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.formats import render
from stapo.analysis.table import Table
from stapo.exhibits import declared
from stapo.files import replace_file
from stapo.stages import jobs_of
from stapo.study import Study


def evidence_table(artefacts: Artefacts, name: str) -> Table:
    """Return a table of evidence by its name.

    Raises:
        DamagedFileError: files that it is computed from are missing, damaged or incomplete.
        StaleScoreError: scores do not belong to this study in its current state.
    """
    table: Table = import_module(f"stapo.analysis.tables.{name}").make(artefacts)
    return table


def evidence_texts(artefacts: Artefacts, name: str) -> dict[str, str]:
    """Return suffix -> content of the files of a table of evidence; equal results give equal bytes.

    Raises:
        DamagedFileError, StaleScoreError: as for `evidence_table`.
    """
    study, exhibit = artefacts.study, declared("tables")[name]
    table, made_by = evidence_table(artefacts, name), jobs_of(study).one("evidence", "").fingerprint
    return {
        suffix: render(table, suffix, (study.name, name), exhibit.title, made_by)
        for suffix in paths.SUFFIXES
    }


def write_evidence(study: Study, name: str, root: Path = Path()) -> list[Path]:
    """Write a table of evidence in its three formats.

    Raises:
        DamagedFileError, StaleScoreError: as for `evidence_table`.
    """
    written = []
    for suffix, text in evidence_texts(Artefacts(study, root), name).items():
        path = root / paths.TABLE.format(study=study.name, table=name, suffix=suffix)
        with replace_file(path) as stream:
            stream.write(text)
        written.append(path)
    return written
