"""Analysis of score files and metrics: tables, figures and the report."""
