"""The figures: one file each, found by this folder.

A file declares its `EXHIBIT`, and has a function `make` of the study's files (`artefacts.py`) that returns a
chart of Altair; `charts.py` has parts for it. Its name is that of the figure.
"""
