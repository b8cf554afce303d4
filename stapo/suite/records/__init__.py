"""Definitions of the records in a study's files. No torch here, and nothing from the pipeline."""
