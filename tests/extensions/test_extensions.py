"""What docs/extend.md says about additions: each takes as many files as its table says, and is used.

Everything is added to a copy of the repository, in which a study of stages of milliseconds
(tests/pipeline/stub) runs to its end.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stapo.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.pipeline]

ADDED: dict[str, dict[str, tuple[str, str]]] = {
    "method": {
        "stapo/methods.py": (
            "METHODS: dict[str, Method] = {\n",
            '    "tight": replace(\n        JUSTRL, title="Tight clips", clip_high=0.22, source="eq. 2",\n'
            '        bibtex="@misc{tight,\\n  title = {Tight clips},\\n}",\n    ),\n',
        )
    },
    "token selection of your own": {
        "workflows/studies/rare.py": (
            "",
            "def silence_rare(logps, entropies, advantages, mask, tau_p=0.002):\n"
            '    """Silence every rare token."""\n    return mask & ~(logps.exp() < tau_p)\n',
        )
    },
    "benchmark for everybody": {
        "benchmarks/tiny/sums.yaml": (
            "",
            (ROOT / "benchmarks/tiny/chain-6.yaml")
            .read_text()
            .replace("stapo_chain-6", "stapo_sums"),
        )
    },
    "figure": {
        "stapo/analysis/figures/kept.py": (
            "",
            '"""Kept tokens."""\nfrom stapo.exhibits import Exhibit\nEXHIBIT = Exhibit(title="Kept tokens")\n'
            "def make(artefacts):\n    from stapo.analysis.curves import over_steps\n"
            '    return over_steps(artefacts, "reward", EXHIBIT.title, "reward again")\n',
        )
    },
    "table": {
        "stapo/analysis/tables/sizes.py": (
            "",
            '"""Sizes."""\nfrom stapo.analysis.table import Column, Table\n'
            "from stapo.exhibits import Exhibit\n"
            'EXHIBIT = Exhibit(title="Sizes")\ndef make(artefacts):\n'
            '    columns = [Column("Size", lambda row: row, text=True)]\n'
            "    rows = artefacts.study.run.sizes\n"
            '    return Table(columns=columns, rows=rows, caption="All sizes", notes=[])\n',
        )
    },
    "stage": {
        "stapo/stages/census.py": (
            "",
            '"""Numbers of prompts."""\nfrom stapo.stages import Job\nAFTER = ("prompts",)\ndef jobs(of):\n'
            '    out = f"results/{of.study.name}/data/census.json"\n'
            '    yield Job("census", "", {"recipe": 1}, {"prompts": of.one("prompts", "")}, (out,))\n'
            "def run(of, jobs, how):\n    raise NotImplementedError\n",
        ),
        "workflows/rules/prepare.smk": (
            "rule base_model:\n",
            'rule census:\n    input:\n        JOBS.one("census", "").inputs,\n    output:\n'
            '        JOBS.one("census", "").outputs,\n    params:\n        made_by=made_by("census"),\n'
            '    shell:\n        run("census")\n\n\n',
        ),
    },
    "command": {
        "stapo/cli/tools.py": (
            "@app.command()\ndef schema(",
            '@app.command()\ndef sizes(study: StudyFile) -> None:\n    """Print the sizes of a study."""\n'
            "    typer.echo(' '.join(study_here(study).run.sizes))\n\n\n",
        )
    },
}
"""What is added -> file -> the line beside which the text is written, none in a new file."""

STUDY = """
extends: smoke
name: mine
training: {steps: 8}
methods: {rare: {base: justrl, selection: "rare.py:silence_rare", selection_args: {tau_p: 0.2}}}
benchmarks: {sums: {samples: 4}}
run: {methods: [tight, rare], decodings: [t1.0-p1.0], benchmarks: [sums]}
"""

REAL = """
from pathlib import Path
from finished_study import finish
from stapo.analysis.citations import references
from stapo.analysis.draw import write_figure
from stapo.analysis.evidence_tables import write_evidence
from stapo.study import read_study
study = read_study(Path({study!r}))
finish(study, Path())
print(*write_figure(study, "kept"), *write_evidence(study, "sizes"))
print(references(study))
"""


@dataclass
class Copy:
    """A copy of the repository, and a directory in which its programs run."""

    root: Path
    work: Path

    def run(self, *command: str, paths: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=self.work,
            env={**os.environ, "PYTHONPATH": f"{self.root / paths}:{self.root}/tests"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def snakemake(self, *arguments: str) -> str:
        files = ["--snakefile", str(self.root / "Snakefile"), "--configfile", str(self.study)]
        stub = "tests/pipeline/stub"
        return self.run("-m", "snakemake", *files, "--cores", "2", *arguments, paths=stub)

    @property
    def study(self) -> Path:
        return self.root / "workflows" / "studies" / "mine.yaml"


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """The repository with everything added; one addition on top of the others."""
    made = Copy(tmp_path / "repository", tmp_path / "work")
    for name in ("stapo", "benchmarks", "workflows", "tests", "docs", "profiles"):
        shutil.copytree(ROOT / name, made.root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "pyproject.toml"):
        shutil.copy(ROOT / name, made.root)
    for files in ADDED.values():
        for name, (beside, text) in files.items():
            path = made.root / name
            assert path.exists() == bool(beside), name
            before = path.read_text() if beside else ""
            assert not beside or before.count(beside) == 1, (name, beside)
            inside = beside.endswith("{\n")
            added = beside + text if inside else text + beside
            path.write_text(before.replace(beside, added) if beside else text)
    made.study.write_text(STUDY)
    made.work.mkdir()
    return made


def test_each_addition_takes_the_files_that_the_page_says_and_is_used(copy: Copy) -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    said = dict(re.findall(r"^\| an? ([a-z ]+) \| (\d) \|", page, re.M))
    for thing, files in ADDED.items():
        assert said[thing] == str(len(files)), thing

    copy.snakemake()
    results = copy.work / "results" / "mine"
    made = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    cell = "seed0/t1.0-p1.0/sums.parquet"
    assert {
        *(f"scores/tiny/{method}/{cell}" for method in ("tight", "rare")),
        *(f"figures/kept.{suffix}" for suffix in ("svg", "pdf", "png")),
        "tables/sizes.csv",
        "data/census.json",
    } <= made
    assert "Nothing to be done" in copy.snakemake("-n")
    # The new stage has a fingerprint and a place among the others.
    stage = copy.root / "stapo" / "stages" / "census.py"
    stage.write_text(stage.read_text().replace('"recipe": 1', '"recipe": 2'))
    jobs = re.findall(
        r"^(census|overlap|train) +(\d)$", copy.snakemake("-n", "--quiet", "rules"), re.M
    )
    assert {*jobs} == {("census", "1")}

    # The real figure, table and reference, from synthetic results; the real command, and checks.
    shutil.rmtree(results)
    shown = copy.run("-c", REAL.format(study=str(copy.study)))
    assert {"figures/kept.svg", "tables/sizes.csv"} <= set(re.findall(r"\w+/\w+\.\w+", shown))
    assert "<svg" in (results / "figures" / "kept.svg").read_text()
    assert "@misc{tight,\n  title = {Tight clips},\n}" in shown
    assert copy.run("-m", "stapo", "sizes", str(copy.study)) == "tiny\n"
    assert "Print the sizes of a study" in copy.run("-m", "stapo", "--help")
    assert "rare.py:silence_rare; sha256: " in copy.run("-m", "stapo", "check", str(copy.study))
    # Lists of what there is complain of a forgotten file.
    listing = (
        "unit/analysis/test_citations.py",
        "unit/evaluation/test_task.py",
    )
    tests = [str(copy.root / "tests" / name) for name in listing]
    assert " passed" in copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
