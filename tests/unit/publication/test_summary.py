"""Results that the repository has, without their raw data."""

import pytest

from stapo.publication.verify import verify
from stapo.repository import ROOT

COMMITTED = [
    ROOT / "results" / name for name in ("miniature", "miniature-1m", "miniature-ablation")
]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_the_results_of_the_repository_hold(folder):
    said: list[str] = []
    assert verify(folder, said.append), said
