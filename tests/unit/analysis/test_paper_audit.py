"""The audit of the paper's own table, by revision, and what is said of it elsewhere."""

import pytest
from rich.console import Console

from stapo.analysis.main_tables import print_audit
from stapo.analysis.paper_audit import (
    audit_headlines,
    audit_rows,
    audit_text,
    decoding_title,
    decodings,
    headline_line,
    independent_lines,
)
from stapo.methods import METHODS
from stapo.study import parse_study


def test_the_one_row_that_does_not_add_up_is_named():
    rows = audit_rows()
    assert len(rows) == 24
    (odd,) = [row for row in rows if not row.follows]
    assert (odd.size, odd.method, odd.stated) == ("14B", "stapo-v2", 64.38)
    assert odd.recomputed == pytest.approx(64.905)
    assert "Table of v1 to v3 [from secondary copies that agree]: 23 of 24" in audit_text()
    assert f"{METHODS['stapo-v2'].title} 14B at T = 1.0, top-p = 1.0" in audit_text()


def test_headlines_of_a_revision_without_table_are_not_recomputed():
    found = {(h.revision, h.decoding): h for h in audit_headlines()}
    assert found["v1 to v3", "t1.0-p1.0"].from_stated == pytest.approx(7.13, abs=0.005)
    assert found["v1 to v3", "t0.7-p0.9"].from_stated == pytest.approx(3.71, abs=0.005)
    later = found["v4 and v5", "t1.0-p1.0"]
    assert later.from_stated is None
    assert (later.stated, later.gains) == (11.49, {"1.7B": 18.49, "8B": 5.78, "14B": 10.20})
    # Stated to 0.01 each, the mean of three to 0.01 too.
    assert sum(later.gains.values()) / 3 == pytest.approx(later.stated, abs=0.01)
    assert found["v4 and v5", "t0.7-p0.9"].gains == {}
    for (revision, _), one in found.items():
        method = "stapo" if revision == "v4 and v5" else "stapo-v2"
        assert headline_line(one).startswith(f"{METHODS[method].title}, {revision}, T = ")


def test_decodings_are_called_as_in_a_study(raw_study):
    smoke = parse_study(raw_study)
    titles = {name: decoding_title(name) for name in decodings()}
    assert titles == {name: smoke.decodings[name].title for name in titles}


def test_everything_that_is_printed_names_its_revision_and_how_sure_it_is():
    console = Console(width=250, record=True)
    print_audit(console)
    text = console.export_text()
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert all("[read in" in line or "[from secondary" in line for line in lines)
    assert all(
        any(w in line for w in ("v1 to v3", "v4 and v5", "revision", "4-shot")) for line in lines
    )
    assert "JustRL 54.51, STAPO 52.26; revision of the mask: not known" in independent_lines()[1]
    for said in (
        "largely insensitive",
        "17.4 to 7.2",
        "P = 0.2433 %",
        "63.20",
        "18.49",
        "tau_h",
        "62.02",
    ):
        assert said in text
