"""The numbers of docs/findings.md are those of results/marked, as the study's own table computes them."""

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.table import markdown_grid
from stapo.analysis.tables import evidence_table
from stapo.repository import ROOT, STUDIES
from stapo.study import read_study


def test_the_interventions_are_those_of_the_results(monkeypatch):
    monkeypatch.chdir(ROOT)
    sizes = (ROOT / "results" / "marked" / "interventions").glob("*/base.json")
    checkpoints = sorted(f"{path.parent.name}/base" for path in sizes)
    changes = {"interventions": {"checkpoints": checkpoints}}
    study = read_study(STUDIES / "marked.yaml", changes=changes)
    table = evidence_table(Artefacts(study, ROOT), "silenced_quadrants")
    assert markdown_grid(table).strip() in (ROOT / "docs" / "findings.md").read_text()
