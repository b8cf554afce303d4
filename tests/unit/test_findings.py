"""The pages that state results of the miniature state those of its tables."""

import csv
import importlib.util
import shutil

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


def test_every_table_is_on_a_page():
    text = "".join(page.read_text() for page in findings.PAGES)
    assert {found[2] for found in findings.BLOCK.finditer(text)} == set(findings.TABLES)


@pytest.mark.parametrize(
    ("name", "column", "page"),
    [
        ("tables/values", "value", "findings"),
    ],
)
def test_another_number_in_the_results_makes_the_page_differ(
    name, column, page, tmp_path, monkeypatch
):
    shutil.copytree(ROOT / "results", tmp_path / "results")
    monkeypatch.setattr(findings, "RESULTS", tmp_path / "results")
    path = tmp_path / "results" / findings.STUDY / f"{name}.csv"
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        sign = "-" if row[column].startswith("-") else ""
        row[column] = f"{sign}7{row[column].removeprefix(sign)}"
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, rows[0])
        table.writeheader()
        table.writerows(rows)
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert findings.written(text) != text
