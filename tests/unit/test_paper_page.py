"""docs/paper.md: everything that the paper shows has a place, and every place exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from stapo.cli import app
from stapo.exhibits import FIGURES, TABLES
from stapo.repository import ROOT

PAGE = (ROOT / "docs" / "paper.md").read_text()
FACTS = Path("/work/shared/paper.md")
PLACES = re.compile(r"(figure|table|study|studies) `([\w-]+)`(?: and `([\w-]+)`)?")


def rows_of(text, heading):
    """Return the cells of the table under a heading."""
    part = text.split(heading)[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = rows_of(PAGE, "## Complete list")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_row_has_a_place_or_a_reason(row):
    assert len(row) == 4
    place = row[-1]
    reason = re.match(r"not applicable: \w+", place)
    assert reason or PLACES.search(place) or "`stapo " in place or "`report.html`" in place
    assert any(row[1:3])


def test_every_place_exists():
    known = {
        "figure": {*FIGURES},
        "table": {*TABLES},
        "study": {path.stem for path in (ROOT / "workflows" / "studies").glob("*.yaml")},
    }
    found = [(kind, name) for kind, *names in PLACES.findall(PAGE) for name in names if name]
    for kind, name in found:
        kind = "study" if kind == "studies" else kind
        assert name in known[kind] or name == "NAME", (kind, name)


def test_every_command_exists():
    commands = set(get_command(app).commands)
    named = set(re.findall(r"`stapo ([a-z-]+)", PAGE))
    assert named
    assert named <= commands


def test_no_row_of_the_facts_is_lost():
    if not FACTS.exists():
        pytest.skip("the list of facts is not on this machine")
    facts = rows_of(FACTS.read_text(), "## 6. Everything that the paper shows")
    assert len(ROWS) >= len(facts)
