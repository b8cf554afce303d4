"""Fixtures of all tests: a small study as a dictionary, which each test may change."""

import copy
import os
from typing import Any

import pytest

from stapo.repository import CATALOGUE, ROOT

# Set before torch is imported, here and in subprocesses: two processes with two threads each would slow each
# other down. `tests/other_cpus.sh` sets other numbers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SMOKE = ROOT / "workflows" / "studies" / "smoke.yaml"


@pytest.fixture
def raw_study() -> dict[str, Any]:
    """The smoke study, merged over the catalogue as Snakemake does."""
    import yaml  # Not at the top: tests of the objective run where torch alone is installed.

    from stapo.study import merge

    catalogue = yaml.safe_load(CATALOGUE.read_text())
    return copy.deepcopy(merge(catalogue, yaml.safe_load(SMOKE.read_text())))
