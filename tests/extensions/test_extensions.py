"""What docs/extend.md says about additions: each takes one file, and is used.

Everything is added to a copy of the repository, in which a study of stages of milliseconds
(tests/pipeline/stub) runs to its end.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stapo.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.pipeline]

CHAIN = (ROOT / "benchmarks/tiny/chain-6.yaml").read_text()
ADDED = {
    "token selection of your own": (
        "workflows/studies/rare.py",
        "def silence_rare(logps, entropies, advantages, mask, tau_p=0.002):\n"
        '    """Silence every rare token."""\n    return mask & ~(logps.exp() < tau_p)\n',
    ),
    "benchmark for everybody": (
        "benchmarks/tiny/sums.yaml",
        CHAIN.replace("stapo_chain-6", "stapo_sums"),
    ),
    "figure": (
        "stapo/analysis/figures/kept.py",
        '"""Kept tokens."""\nfrom stapo.exhibits import Exhibit\nEXHIBIT = Exhibit(title="Kept tokens")\n'
        "def make(artefacts):\n    from stapo.analysis.curves import over_steps\n"
        '    return over_steps(artefacts, "reward", EXHIBIT.title, "reward again")\n',
    ),
}
"""What is added -> its one file, and the text of it."""

STUDY = """
extends: smoke
name: mine
training: {steps: 8}
methods: {rare: {base: justrl, selection: "rare.py:silence_rare", selection_args: {tau_p: 0.2}}}
benchmarks: {sums: {samples: 4}}
run: {methods: [rare], decodings: [t1.0-p1.0], benchmarks: [sums]}
"""

REAL = """
from pathlib import Path
from finished_study import finish
from stapo.analysis.charts import write_figure
from stapo.study import read_study
study = read_study(Path({study!r}))
finish(study, Path())
write_figure(study, "kept")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository with everything added; one addition on top of the others."""
    made = tmp_path / "repository"
    for name in ("stapo", "benchmarks", "workflows", "tests", "profiles"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "pyproject.toml"):
        shutil.copy(ROOT / name, made)
    for name, text in ADDED.values():
        assert not (made / name).exists(), name
        (made / name).write_text(text)
    (made / "workflows" / "studies" / "mine.yaml").write_text(STUDY)
    return made


def test_each_addition_takes_one_file_and_is_used(root: Path) -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    said = dict(re.findall(r"^\| an? ([a-z ]+) \| (\d) \|", page, re.M))
    assert {said[thing] for thing in ADDED} == {"1"}
    work, study = root.with_name("work"), root / "workflows" / "studies" / "mine.yaml"
    work.mkdir()

    def run(*command: str, first: Path = root) -> str:
        done = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=work,
            env={**os.environ, "PYTHONPATH": f"{first}:{root}/tests"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    files = ["--snakefile", str(root / "Snakefile"), "--configfile", str(study)]
    stub = root / "tests" / "pipeline" / "stub"
    run("-m", "snakemake", *files, "--cores", "2", first=stub)
    results, cell = work / "results" / "mine", "seed0/t1.0-p1.0/sums.parquet"
    made = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    assert {f"scores/tiny/rare/{cell}", "figures/kept.svg"} <= made
    # The real figure, from synthetic results, and the real check.
    shutil.rmtree(results)
    run("-c", REAL.format(study=str(study)))
    assert "<svg" in (results / "figures" / "kept.svg").read_text()
    assert "rare.py:silence_rare; sha256: " in run("-m", "stapo", "check", str(study))
