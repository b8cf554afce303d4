"""Everything here is numbers that a CPU computes."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.rounding)
