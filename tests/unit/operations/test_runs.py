"""Snakemake ignores a profile that does not exist; the Snakefile does not."""

import pytest

from stapo.operations import runs
from stapo.repository import ROOT


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
