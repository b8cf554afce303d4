"""Paths of the package, and of the repository around it."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
CATALOGUE = ROOT / "workflows" / "catalogue.yaml"
STUDIES = ROOT / "workflows" / "studies"
BENCHMARKS = ROOT / "benchmarks"
