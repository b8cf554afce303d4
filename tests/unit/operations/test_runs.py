"""What the Snakefile says of profiles and of the end of a run."""

import pytest

from stapo.operations import current, runs
from stapo.repository import ROOT
from stapo.study import parse_study


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--workflow-profile", "none"],
        ["--workflow-profile", "workflows/profiles/smoke"],
        ["--workflow-profile=workflows/profiles/smoke", "-n"],
        # Snakemake looks there too.
        ["--workflow-profile", "default"],
        ["--workflow-profile", "mine"],
    ],
)
def test_a_profile_that_snakemake_finds_is_none_to_complain_of(monkeypatch, tmp_path, arguments):
    (tmp_path / "profiles" / "mine").mkdir(parents=True)
    (tmp_path / "workflows").symlink_to(ROOT / "workflows")
    monkeypatch.chdir(tmp_path)
    assert runs.profile_fault(["snakemake", *arguments], ROOT) is None


@pytest.mark.parametrize(
    "arguments", [["--workflow-profile", "smokee"], ["--workflow-profile=smokee", "-n"]]
)
def test_a_misspelt_profile_is_named_with_those_that_there_are(arguments):
    fault = runs.profile_fault(["snakemake", *arguments], ROOT)
    assert fault is not None
    assert "no such profile: smokee; known: workflows/profiles/slurm, " in fault


def test_the_end_of_a_run_says_what_to_look_at_and_what_to_do(raw_study, tmp_path, monkeypatch):
    study = parse_study(raw_study)
    failed = "\n".join(runs.last_lines(study, "mine.yaml", succeeded=False, root=tmp_path))
    assert "stapo status mine.yaml" in failed
    assert "logs/smoke/" in failed
    part = "\n".join(runs.last_lines(study, "mine.yaml", succeeded=True, root=tmp_path))
    assert "stapo status mine.yaml" in part
    assert "finished" not in part
    monkeypatch.setattr(current, "outputs", lambda *_: {"report": "there", "files": "there"})
    done = "\n".join(runs.last_lines(study, "mine.yaml", succeeded=True, root=tmp_path))
    for path in (
        "results/smoke/report.html",
        "results/smoke/tables/",
        "stapo verify results/smoke",
    ):
        assert path in done
