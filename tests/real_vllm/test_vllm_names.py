"""The names of vLLM that we rely on, where it is installed: see `docs/private-names.md`."""

import pytest

pytest.importorskip("vllm", reason="make test-vllm")

import contracts_evaluation  # noqa: F401  # Fills the list.
from contracts import CONTRACTS, hold


@pytest.mark.parametrize("name", sorted(name for package, name in CONTRACTS if package == "vllm"))
def test_what_we_rely_on_is_there(name):
    hold("vllm", name)
