"""Analysis of score files and metrics: tables, figures and the report.

The way of a table: `drawing.py` calls `tables.write_evidence`; `make` of `tables/NAME.py` gets `Artefacts`,
which read the study's files, and returns a `Table` of columns and rows; `formats.py` writes it as Markdown
and CSV, and `report.py` as HTML. What several tables and figures are computed from is in `evidence` (token
records, interventions), `curves.py` (metrics) and `quantities.py` (claims). The main table is computed by
`main_table.py` and shown by `main_rendering.py`; each of its numbers is a row of `values.py`.
"""
