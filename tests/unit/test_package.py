"""A release: sdist and wheel can be built, are complete, and run where they are installed."""

import shutil
from pathlib import Path

import pytest
from programs import python, ran

from stapo.suite.repository import ROOT

BUILD = "import setuptools.build_meta as made; print(made.build_{0}({1!r}))"
DATA = (
    "suite/reference/paper.yaml", "suite/analysis/templates/report.html.j2",
    "core/conformance/fixtures.json", "core/objective/formulas.json",
)  # fmt: skip


@pytest.mark.slow
def test_what_is_built_is_complete_and_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    source, built, place = (tmp_path / name for name in ("source", "built", "installed"))
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "stapo", source / "stapo")
    sdist = python("-c", BUILD.format("sdist", str(built)), at=source).stdout.split()[-1]
    ran("tar", "-xf", built / sdist, at=tmp_path)  # Python's own has no filters before 3.11.4.
    unpacked = tmp_path / sdist.removesuffix(".tar.gz")
    wheel = python("-c", BUILD.format("wheel", str(built)), at=unpacked).stdout.split()[-1]
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", place)
    python(*install, built / wheel, at=tmp_path)
    assert all((place / "stapo" / name).is_file() for name in DATA)
    # Of the environment only what `stapo` needs is used, not the package itself.
    command = ("-P", "-m", "stapo", "conformance", "--trainer", "ours")
    said = python(*command, at=tmp_path, PYTHONPATH=str(place)).stdout
    assert "does not hold" not in said
    assert said.count("holds") > 5
    show = ("-P", "-c", "import stapo; print(stapo.__file__)")
    assert python(*show, at=tmp_path, PYTHONPATH=str(place)).stdout.startswith(str(place))
