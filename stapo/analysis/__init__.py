"""From files of scores and metrics to tables, figures and the report."""
