"""Paths of the repository outside the package."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "workflows" / "catalogue.yaml"
STUDIES = ROOT / "workflows" / "studies"
BENCHMARKS = ROOT / "benchmarks"
