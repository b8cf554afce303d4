"""A release: sdist and wheel can be built, are complete, and run where they are installed."""

import os
import sys
from pathlib import Path

import pytest
from programs import python, ran

from stapo.suite.repository import ROOT

DATA = (
    "suite/reference/paper.yaml", "suite/analysis/templates/report.html.j2",
    "core/conformance/fixtures.json", "core/objective/formulas.json",
)  # fmt: skip


@pytest.mark.slow
def test_what_is_built_is_complete_and_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    built, place = tmp_path / "built", tmp_path / "installed"
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran(ROOT / "requirements" / "dist.sh", built, at=tmp_path, PATH=programs)
    (wheel,) = built.glob("*.whl")
    version = wheel.name.split("-")[1]
    _, _, released = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {version}, ")
    stated = f"\nversion: {version}\ndate-released: {released[:10]}\n"
    assert stated in (ROOT / "CITATION.cff").read_text()
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", place)
    python(*install, wheel, at=tmp_path)
    assert all((place / "stapo" / name).is_file() for name in DATA)
    # Of the environment only what `stapo` needs is used, not the package itself.
    command = ("-P", "-m", "stapo", "conformance", "--trainer", "ours")
    said = python(*command, at=tmp_path, PYTHONPATH=str(place)).stdout
    assert "does not hold" not in said
    assert said.count("holds") > 5
    show = ("-P", "-c", "import stapo; print(stapo.__file__)")
    assert python(*show, at=tmp_path, PYTHONPATH=str(place)).stdout.startswith(str(place))
