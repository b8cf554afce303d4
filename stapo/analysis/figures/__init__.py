"""The figures: one file each, found by this folder.

A file declares its `EXHIBIT`, and has a function `make` of the study's files (`stapo.analysis.artefacts`)
that returns a chart of Altair; `stapo.analysis.charts` has parts for it. Its name is that of the figure.
"""
