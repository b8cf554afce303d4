"""What CONTRIBUTING.md says about additions: each takes as many files as its table says, and is used.

Everything is added to a copy of the repository, in which a study of stages of milliseconds
(tests/pipeline/stub) runs to its end.
"""

import re
import shutil
from pathlib import Path

import pytest
from programs import python

from stapo.suite.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.pipeline]

CHAIN = (ROOT / "benchmarks/tiny/chain-6.yaml").read_text()
ADDED: dict[str, dict[str, tuple[str, str]]] = {
    "method": {
        "stapo/core/methods/__init__.py": (
            "METHODS: dict[str, Method] = {\n",
            '    "tight": replace(\n        JUSTRL, title="Tight clips", clip_high=0.22, source="eq. 2",\n'
            "    ),\n",
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
        "benchmarks/tiny/sums.yaml": ("", CHAIN.replace("stapo_chain-6", "stapo_sums"))
    },
    "figure": {
        "stapo/suite/analysis/figures/kept.py": (
            "",
            '"""Kept tokens."""\nfrom stapo.suite.exhibits import Exhibit\n'
            'EXHIBIT = Exhibit(title="Kept tokens")\n'
            "def make(artefacts):\n    from stapo.suite.analysis.curves import over_steps\n"
            '    return over_steps(artefacts, "reward", EXHIBIT.title, "reward again")\n',
        )
    },
    "table": {
        "stapo/suite/analysis/tables/sizes.py": (
            "",
            '"""Sizes."""\nfrom stapo.suite.analysis.formats import Column, Table\n'
            "from stapo.suite.exhibits import Exhibit\n"
            'EXHIBIT = Exhibit(title="Sizes")\ndef make(artefacts):\n'
            '    columns = [Column("Size", lambda row: row, text=True)]\n'
            "    rows = artefacts.study.run.models\n"
            '    return Table(columns=columns, rows=rows, caption="All sizes", notes=[])\n',
        )
    },
    "command": {
        "stapo/suite/cli/tools.py": (
            "def print_json(",
            '@app.command()\ndef greet() -> None:\n    """Greet."""\n    typer.echo("hello")\n\n\n',
        )
    },
    "stage": {
        "stapo/suite/jobs/census.py": (
            "",
            '"""Numbers of prompts."""\nfrom stapo.suite.job import Job, Stage\ndef census(jobs):\n'
            '    out = f"results/{jobs.study.name}/data/census.json"\n'
            '    yield Job("census", "", {"recipe": 1}, {"prompts": jobs.job("prompts")}, (out,))\n'
            'STAGES = {"census": Stage(("prompts",), census)}\n',
        ),
        "stapo/suite/runners/census.py": (
            "",
            '"""Counts prompts."""\ndef run(jobs, selected, resources):\n    raise NotImplementedError\n'
            'RUNNERS = {"census": run}\n',
        ),
        "workflows/rules/prepare.smk": (
            "rule base_model:\n",
            'rule census:\n    input:\n        JOBS.job("census").inputs,\n    output:\n'
            '        JOBS.job("census").outputs,\n    params:\n        made_by=made_by("census"),\n'
            '    shell:\n        run("census")\n\n\n',
        ),
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
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.charts import write_figure
from stapo.suite.analysis.tables import write_evidence
from stapo.suite.study import read_study
study = read_study(Path({study!r}))
finish(study, Path())
artefacts = Artefacts(study)
print(*write_figure(artefacts, "kept"), *write_evidence(artefacts, "sizes"))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository with everything added; one addition on top of the others."""
    made = tmp_path / "repository"
    for name in ("stapo", "benchmarks", "workflows", "tests", "profiles"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "pyproject.toml"):
        shutil.copy(ROOT / name, made)
    for files in ADDED.values():
        for name, (beside, text) in files.items():
            path = made / name
            assert path.exists() == bool(beside), name
            before = path.read_text() if beside else ""
            assert not beside or before.count(beside) == 1, (name, beside)
            added = beside + text if beside.endswith("{\n") else text + beside
            path.write_text(before.replace(beside, added) if beside else text)
    (made / "workflows" / "studies" / "mine.yaml").write_text(STUDY)
    return made


def test_each_addition_takes_the_files_that_the_page_says_and_is_used(root: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    said = dict(re.findall(r"^\| an? ([a-z ]+) \| (\d) \|", page, re.M))
    for thing, files in ADDED.items():
        assert said[thing] == str(len(files)), thing
    work, study = root.with_name("work"), root / "workflows" / "studies" / "mine.yaml"
    work.mkdir()

    def run(*command: str, first: Path = root) -> str:
        done = python("-P", *command, at=work, PYTHONPATH=f"{first}:{root}/tests")
        return done.stdout + done.stderr

    def snakemake(*arguments: str) -> str:
        files = ["--snakefile", str(root / "Snakefile"), "--configfile", str(study)]
        stub = root / "tests" / "pipeline" / "stub"
        return run("-m", "snakemake", *files, "--cores", "2", *arguments, first=stub)

    snakemake()
    results, cell = work / "results" / "mine", "seed0/t1.0-p1.0/sums.parquet"
    made = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    assert {
        *(f"scores/tiny/{method}/{cell}" for method in ("tight", "rare")),
        *(f"figures/kept.{suffix}" for suffix in ("svg", "pdf", "png")),
        "tables/sizes.csv",
        "data/census.json",
    } <= made
    # The new stage has a fingerprint and a place among the others.
    stage = root / "stapo" / "suite" / "jobs" / "census.py"
    stage.write_text(stage.read_text().replace('"recipe": 1', '"recipe": 2'))
    jobs = re.findall(r"^study: (census|overlap|train) +(\d) ", snakemake("-n"), re.M)
    assert jobs == [("census", "1")]

    assert run("-m", "stapo", "greet") == "hello\n"

    # The real figure and table, from synthetic results, and the real check.
    shutil.rmtree(results)
    shown = run("-c", REAL.format(study=str(study)))
    assert {"figures/kept.svg", "tables/sizes.csv"} <= set(re.findall(r"\w+/\w+\.\w+", shown))
    assert "<svg" in (results / "figures" / "kept.svg").read_text()
    assert "rare.py:silence_rare; selection_sha256: " in run("-m", "stapo", "check", str(study))
