"""The names of vLLM that we rely on, where it is installed: see `docs/private-names.md`."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="make test-vllm")

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from test_private_names import is_there, rows_of_page


@pytest.mark.parametrize(
    "name", sorted(name for package, name in rows_of_page() if package == "vllm")
)
def test_what_we_rely_on_is_there(name):
    assert is_there(name)
