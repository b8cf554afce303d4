"""Fixtures of all tests: a small study as a dictionary, to be bent by each test."""

import copy
import os
from typing import Any

import pytest
import yaml

from stapo.repository import CATALOGUE, ROOT
from stapo.study import merge

# Before torch is imported, here and in what tests start: two processes with two threads each only wait for
# one another. `tests/other_cpus.sh` sets other numbers.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SMOKE = ROOT / "workflows" / "studies" / "smoke.yaml"


@pytest.fixture
def raw_study() -> dict[str, Any]:
    """The smoke study, merged over the catalogue as Snakemake does."""
    catalogue = yaml.safe_load(CATALOGUE.read_text())
    return copy.deepcopy(merge(catalogue, yaml.safe_load(SMOKE.read_text())))
