"""Stands before the package on PYTHONPATH: its own `__main__`, everything else from the package itself."""

from pathlib import Path

__path__.append(str(Path(__file__).parents[4] / "stapo"))
