"""Results that the repository has, without their raw data."""

import pytest

from stapo.publication.verify import verify
from stapo.repository import ROOT

COMMITTED = sorted(path.parent for path in (ROOT / "results").glob("miniature*/provenance.json"))


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_the_results_of_the_repository_hold(folder):
    said: list[str] = []
    assert verify(folder, said.append), said


def test_there_are_some():
    assert "miniature" in {folder.name for folder in COMMITTED}
