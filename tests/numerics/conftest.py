"""Everything here is numbers that a CPU computes."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test."""
    item.add_marker(pytest.mark.rounding)
