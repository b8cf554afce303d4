"""References: every method and benchmark has one, and bibtex reads them."""

import re
import shutil
import subprocess
from itertools import chain

import pytest

from stapo.analysis.citations import references
from stapo.methods import METHODS
from stapo.reference import bibliography, citations, paper
from stapo.repository import ROOT, STUDIES
from stapo.study import read_study
from stapo.tasks import benchmark_definitions


def test_every_method_and_every_benchmark_of_the_paper_has_a_reference():
    known = citations()
    assert known["methods"].keys() == {
        n for n, m in METHODS.items() if m.source != "our choice" and not m.bibtex
    }
    assert {*paper()["benchmarks"]} <= known["benchmarks"].keys() <= benchmark_definitions().keys()
    groups = [known[kind].values() for kind in ("methods", "benchmarks", "hub")]
    used = {key for keys in (known["always"], known["vllm"], *chain(*groups)) for key in keys}
    assert used == bibliography().keys()


@pytest.mark.parametrize("key", bibliography())
def test_an_entry_has_title_and_author_and_the_arxiv_number_where_it_stands(key):
    entry = bibliography()[key]
    found = dict(re.findall(r"^  (\w+) = \{(.*?)\},$", entry, re.MULTILINE | re.DOTALL))
    assert found["title"]
    assert found["author"]
    assert entry.isascii()
    assert entry.count("{") == entry.count("}")
    if "arXiv" in found.get("journal", ""):
        assert found["journal"] == f"arXiv preprint arXiv:{found['eprint']}"
        # The first two digits are the year.
        assert found["year"] == f"20{found['eprint'][:2]}"
    for name, keys in citations()["methods"].items():
        numbers = re.findall(r"arXiv (\d{4}\.\d{5})", METHODS[name].source) if key in keys else []
        assert {*numbers} <= {found.get("eprint")}


@pytest.mark.parametrize(
    ("study", "cited", "not_cited"),
    [
        ("smoke", "stapo-suite stapo deepseekmath twenty-entropy justrl",
         "qwen3 aime24 vllm dapo compassverifier"),
        ("paper", "qwen3 aime24 aime25 amc23 math math500 minerva olympiadbench vllm dapo compassverifier",
         ""),
    ],
)  # fmt: skip
def test_a_study_cites_what_it_uses_and_nothing_else(study, cited, not_cited):
    text = references(read_study(STUDIES / f"{study}.yaml"))
    keys = {*re.findall(r"^@\w+\{(.+),$", text, re.MULTILINE)}
    assert {*cited.split()} <= keys
    assert not {*not_cited.split()} & keys
    assert "No reference known" not in text


@pytest.mark.skipif(not shutil.which("bibtex"), reason="needs bibtex (texlive-binaries)")
def test_bibtex_reads_all_entries(tmp_path):
    shutil.copy(ROOT / "stapo" / "reference" / "references.bib", tmp_path / "references.bib")
    (tmp_path / "a.aux").write_text(
        "\\relax\n\\citation{*}\n\\bibstyle{plain}\n\\bibdata{references}\n"
    )
    done = subprocess.run(["bibtex", "a"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stdout, done.stdout
    assert (tmp_path / "a.bbl").read_text().count(r"\bibitem") == len(bibliography())
