"""A release: sdist and wheel can be built, are complete, and run where they are installed."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stapo.repository import ROOT

BUILD = "import setuptools.build_meta as made; print(made.build_{0}({1!r}))"
DATA = ("reference/paper.yaml", "analysis/templates/report.html.j2", "conformance/fixtures.json")


def ran(*command: str, at: Path, **variables: str) -> str:
    variables = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **variables}
    found = subprocess.run(command, cwd=at, env=variables, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.slow
def test_what_is_built_is_complete_and_runs(tmp_path: Path) -> None:
    source, built, place = (tmp_path / name for name in ("source", "built", "installed"))
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "stapo", source / "stapo")
    sdist = ran(sys.executable, "-c", BUILD.format("sdist", str(built)), at=source).split()[-1]
    with tarfile.open(built / sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.removesuffix(".tar.gz")
    wheel = ran(sys.executable, "-c", BUILD.format("wheel", str(built)), at=unpacked).split()[-1]
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place))
    ran(sys.executable, *install, str(built / wheel), at=tmp_path)
    assert all((place / "stapo" / name).is_file() for name in DATA)
    # Of the environment only what `stapo` needs is used, not the package itself.
    command = (sys.executable, "-P", "-m", "stapo", "conformance", "--trainer", "ours")
    said = ran(*command, at=tmp_path, PYTHONPATH=str(place))
    assert "does not hold" not in said
    assert said.count("holds") > 5
    show = (sys.executable, "-P", "-c", "import stapo; print(stapo.__file__)")
    assert ran(*show, at=tmp_path, PYTHONPATH=str(place)).startswith(str(place))
