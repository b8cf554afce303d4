"""Where a study runs does not matter: odd paths, and modules that lie in the working directory."""

import shutil
import sys

from programs import ran

from stapo.suite.repository import ROOT

ODD = 'it\'s a $HOME; dir & more `x` {y} "z"'
OVERLAP = "results/smoke/data/overlap.json"


def test_a_study_runs_below_a_path_that_a_shell_would_take_apart(tmp_path, monkeypatch):
    """As most do it, in the directory of the Snakefile, which Snakemake itself makes importable."""
    place, imported = tmp_path / ODD, tmp_path / "imported"
    package, work = place / "package", place / "work here"
    for name in ("stapo", "workflows", "benchmarks"):
        shutil.copytree(ROOT / name, package / name)
    shutil.copytree(ROOT / "workflows", work / "workflows")
    shutil.copy(ROOT / "Snakefile", work)
    (place / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    for name in ("typer", "torch", "stapo", "pydantic", "numpy", "json"):
        tells = f"open({str(imported)!r}, 'a').write('{name}\\n')\n"
        (work / f"{name}.py").write_text(tells)
    # As Snakemake's console script does it: without the working directory in sys.path.
    python = str(place / ".venv" / "bin" / "python")
    command = [
        *(python, "-P", "-m", "snakemake", OVERLAP, "--cores", "1", "--printshellcmds"),
        *("--configfile", "workflows/studies/quickstart/smoke.yaml"),
    ]
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    done = ran(*command, at=work, PYTHONPATH=str(package))
    told = done.stdout + done.stderr
    assert f"{ODD.partition('$')[2]}/.venv/bin/python" in told
    assert (work / OVERLAP).exists()
    assert not imported.exists(), imported.read_text()
