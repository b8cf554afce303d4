"""The pages that state results of the miniature state those of its tables."""

import importlib.util

import pytest

from stapo.repository import ROOT

spec = importlib.util.spec_from_file_location("findings", ROOT / "workflows" / "findings.py")
findings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(findings)


@pytest.mark.parametrize("page", findings.PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_results(page):
    assert findings.written(page.read_text()) == page.read_text(), (
        "next: python workflows/findings.py"
    )
