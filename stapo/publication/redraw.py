"""Check that tables, figures and report follow from scores and metrics."""

from collections.abc import Iterator

from stapo import paths
from stapo.analysis.against_paper import compare
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.citations import references
from stapo.analysis.comparison import main_table
from stapo.analysis.draw import chart_of, image
from stapo.analysis.evidence_tables import evidence_texts
from stapo.analysis.main_tables import render
from stapo.analysis.report import render_report
from stapo.analysis.values import SCHEMA as VALUES
from stapo.analysis.values import values_csv, values_table
from stapo.publication import untrusted
from stapo.publication.folder import FILE_BYTES, Results

FIGURE_BYTES = 2**24


def drawn_errors(results: Results) -> Iterator[str]:
    """Yield a line for each table, figure or report that does not follow from the results."""
    study, root = results.study, results.root
    artefacts = Artefacts(study, root)
    yield from _table_errors(artefacts)
    yield from _value_errors(artefacts)
    yield from _figure_errors(artefacts)
    path = paths.REPORT.format(study=study.name)
    if untrusted.read_text(root / path, FILE_BYTES) != render_report(study, root):
        yield f"{path}: does not follow from scores, responses and figures"


def _table_errors(artefacts: Artefacts) -> Iterator[str]:
    study, root = artefacts.study, artefacts.root
    for decoding in study.run.decodings:
        table = main_table(study, decoding, artefacts.scores(decoding))
        compared = compare(study, table)
        for suffix in paths.SUFFIXES:
            path = paths.MAIN_TABLE.format(study=study.name, decoding=decoding, suffix=suffix)
            if untrusted.read_text(root / path, FILE_BYTES) != render(table, suffix, compared):
                yield f"{path}: does not follow from the scores"
    for name in paths.table_names(study):
        for suffix, text in evidence_texts(artefacts, name).items():
            path = paths.TABLE.format(study=study.name, table=name, suffix=suffix)
            if untrusted.read_text(root / path, FILE_BYTES) != text:
                yield f"{path}: does not follow from what was recorded"


def _value_errors(artefacts: Artefacts) -> Iterator[str]:
    study, root = artefacts.study, artefacts.root
    expected = values_table(artefacts)
    texts, binary = (root / path for path in paths.value_paths(study))
    if untrusted.read_text(texts, FILE_BYTES) != values_csv(expected):
        yield f"{texts.relative_to(root)}: does not follow from the scores"
    rows = expected.num_rows
    # By content: other versions of the library write other bytes.
    found = untrusted.read_parquet(binary, VALUES, rows, FILE_BYTES, FILE_BYTES)
    if not found.equals(expected):
        yield f"{binary.relative_to(root)}: does not follow from the scores"
    path = paths.REFERENCES.format(study=study.name)
    if untrusted.read_text(root / path, FILE_BYTES) != references(study):
        yield f"{path}: not the references of the study"


def _figure_errors(artefacts: Artefacts) -> Iterator[str]:
    study = artefacts.study
    for name in paths.figure_names(study):
        for suffix, expected in image(chart_of(artefacts, name)).items():
            path = paths.FIGURE.format(study=study.name, figure=name, suffix=suffix)
            with untrusted.open_regular(artefacts.root / path, FIGURE_BYTES) as stream:
                found = stream.read(FIGURE_BYTES)
            if found != expected:
                yield f"{path}: does not follow from what was recorded"
