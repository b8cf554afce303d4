"""Where a study runs does not matter: odd paths, and modules that lie in the working directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stapo.repository import ROOT

ODD = 'it\'s a $HOME; dir & more `x` {y} "z"'
STUDY = "workflows/studies/smoke.yaml"
OVERLAP = "results/smoke/data/overlap.json"


def shadow(directory: Path, *modules: str) -> Path:
    """Leave modules that tell when they are imported; return where they tell."""
    told = directory.parent / "imported"
    for name in modules:
        (directory / f"{name}.py").write_text(f"open({str(told)!r}, 'a').write('{name}\\n')\n")
    return told


def snakemake(python: Path, repository: Path, directory: Path, package: Path) -> str:
    """Run Snakemake as its console script does: without the working directory in sys.path."""
    command = [
        *(str(python), "-P", "-m", "snakemake", OVERLAP, "--cores", "1", "--printshellcmds"),
        *("--snakefile", str(repository / "Snakefile"), "--configfile", str(repository / STUDY)),
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = str(package)
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def odd(tmp_path):
    """A checkout, its interpreter and a working directory below a name that a shell would take apart."""
    place = tmp_path / ODD
    (place / "work here").mkdir(parents=True)
    for name in ("stapo", "workflows", "benchmarks"):
        shutil.copytree(ROOT / name, place / "checkout" / name)
    shutil.copy(ROOT / "Snakefile", place / "checkout")
    (place / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    return place


def test_a_study_runs_below_a_path_that_a_shell_would_take_apart(odd):
    python = odd / ".venv" / "bin" / "python"
    told = snakemake(python, odd / "checkout", odd / "work here", odd / "checkout")
    assert f"{ODD.partition('$')[2]}/.venv/bin/python" in told
    assert (odd / "work here" / OVERLAP).exists()
    # From another place nothing is run again: a command is compared before it is filled in.
    moved = snakemake(Path(sys.executable), ROOT, odd / "work here", ROOT)
    assert "Nothing to be done" in moved


def test_no_module_of_the_working_directory_is_imported(tmp_path):
    """As most do it: in the directory of the Snakefile, which Snakemake itself makes importable."""
    directory = tmp_path / "checkout"
    shutil.copytree(ROOT / "workflows", directory / "workflows")
    shutil.copy(ROOT / "Snakefile", directory)
    told = shadow(directory, "typer", "torch", "stapo", "pydantic", "numpy", "json")
    snakemake(Path(sys.executable), directory, directory, ROOT)
    assert (directory / OVERLAP).exists()
    assert not told.exists(), told.read_text()
