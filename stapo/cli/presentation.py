"""The last steps of the pipeline, from scores to what is published: one command for each rule.

Heavy imports stand inside the commands, as in `stapo.cli.pipeline`.
"""

from typing import Annotated

import typer

from stapo.cli.common import (
    DecodingOption,
    StudyOption,
    app,
    list_paths,
    require,
    require_exhibit,
    study_of,
)
from stapo.exhibits import FIGURES, TABLES
from stapo.paths import figure_names, table_names


@app.command()
def table(study: StudyOption, decoding: DecodingOption) -> None:
    """Write the table of one decoding as Markdown, LaTeX and CSV.

    Example: stapo table --study workflows/studies/smoke.yaml --decoding t1.0-p1.0
    """
    from stapo.analysis.main_tables import write_tables

    found = study_of(study)
    require("--decoding", decoding, found.run.decodings)
    list_paths(write_tables(found, decoding))


@app.command()
def figure(
    study: StudyOption, name: Annotated[str, typer.Option(help=f"One of {', '.join(FIGURES)}")]
) -> None:
    """Write one figure of a study as SVG, PDF and PNG.

    Example: stapo figure --study workflows/studies/smoke.yaml --name entropy
    """
    from stapo.analysis.draw import write_figure

    found = study_of(study)
    require_exhibit(found, name, FIGURES, figure_names(found))
    list_paths(write_figure(found, name))


@app.command()
def evidence(
    study: StudyOption, name: Annotated[str, typer.Option(help=f"One of {', '.join(TABLES)}")]
) -> None:
    """Write one table of evidence as Markdown, LaTeX and CSV.

    Example: stapo evidence --study workflows/studies/smoke.yaml --name stability
    """
    from stapo.analysis.evidence_tables import write_evidence

    found = study_of(study)
    require_exhibit(found, name, TABLES, table_names(found))
    list_paths(write_evidence(found, name))


@app.command()
def values(study: StudyOption) -> None:
    """Write every number of the tables, one row each, as CSV and Parquet.

    Example: stapo values --study workflows/studies/smoke.yaml
    """
    from stapo.analysis.values import write_values

    list_paths(write_values(study_of(study)))


@app.command()
def references(study: StudyOption) -> None:
    """Write what a paper that uses the results cites, as BibTeX.

    Example: stapo references --study workflows/studies/smoke.yaml
    """
    from stapo.analysis.citations import write_references

    list_paths([write_references(study_of(study))])


@app.command()
def report(study: StudyOption) -> None:
    """Write the report, one HTML page.

    Example: stapo report --study workflows/studies/smoke.yaml
    """
    from stapo.analysis.report import write_report

    list_paths([write_report(study_of(study))])


@app.command()
def provenance(study: StudyOption) -> None:
    """Write where a finished study comes from, and the checksums of its files.

    Example: stapo provenance --study workflows/studies/smoke.yaml
    """
    from stapo.publication.manifest import write_provenance

    list_paths(write_provenance(study_of(study)))
