"""One reduced study: run, run again, and verified, as a user would."""

from programs import python

from stapo.suite.repository import ROOT


def test_a_reduced_study_runs_reruns_and_verifies(workspace):
    assert workspace.jobs() == {}
    folder = workspace.path / "results" / "smoke"
    table = (folder / "tables" / "main-t1.0-p1.0.md").read_text()
    assert all(name in table for name in ("GRPO", "20-Entropy", "JustRL", "STAPO"))
    assert "<html" in (folder / "report.html").read_text()
    python("-P", "-m", "stapo", "verify", folder, at=ROOT)
