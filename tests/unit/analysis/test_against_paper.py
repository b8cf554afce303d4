"""Ours beside the paper's: each revision's numbers beside that revision's method."""

import io
import re

import pytest
from rich.console import Console
from synthetic import write_score

from stapo.analysis.against_paper import claims_of, compare
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import print_audit, render
from stapo.analysis.paper_audit import audit_rows, audit_text, recomputed_headline, stated_headline
from stapo.methods import BASELINES, METHODS
from stapo.reference import paper
from stapo.repository import STUDIES
from stapo.study import parse_study, read_study

SIX = paper()["benchmarks"]
ALL = [*BASELINES, "stapo", "stapo-v2"]


def tabulated(raw, root, *, sizes=("1.7B",), methods=ALL, benchmarks=SIX, decoding="t1.0-p1.0"):
    raw["benchmarks"] = {name: {"samples": 10} for name in benchmarks}
    raw["run"] |= {
        "sizes": list(sizes),
        "methods": list(methods),
        "decodings": [decoding],
        "benchmarks": list(benchmarks),
    }
    study = parse_study(raw)
    for checkpoint in study.checkpoints():
        for benchmark in benchmarks:
            write_score(root, study, checkpoint, benchmark)
    table = main_table(study, decoding, read_scores(study, decoding, root))
    return table, compare(study, table)


@pytest.mark.parametrize("all_six", [True, False])
def test_ours_stands_beside_the_papers_cell(raw_study, tmp_path, all_six):
    names = SIX if all_six else ["aime24", "math500"]
    table, against = tabulated(raw_study, tmp_path, benchmarks=names, decoding="t0.7-p0.9")
    cells = {(cell.title, cell.what): cell for cell in against.cells}
    # An average over other benchmarks than the paper's is another quantity.
    assert len(cells) == 4 * (7 if all_six else 2)
    title = METHODS["stapo-v2"].title
    cell = cells[title, "aime24"]
    own = next(row for row in table.rows if row.method == "stapo-v2").cells["aime24"].value
    assert (cell.ours, cell.paper, cell.difference) == (own, 16.04, own - 16.04)
    text = render(table, "md", against)
    line = f"| v1 to v3 | 1.7B | {title} | aime24 | {own:.2f} | 16.04 | {own - 16.04:+.2f} |"
    assert line in text
    assert "Against the paper" not in render(table, "md")


def test_no_revision_is_judged_by_the_table_of_another(raw_study, tmp_path):
    table, against = tabulated(raw_study, tmp_path)
    assert {cell.revision for cell in against.cells} == {"v1 to v3"}
    titles = {cell.title for cell in against.cells}
    assert METHODS["stapo-v2"].title in titles
    assert METHODS["stapo"].title not in titles
    (note,) = against.notes
    assert note.startswith(METHODS["stapo"].title)
    assert "v4 and v5 is not known" in note
    assert note in render(table, "md", against)


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        (
            "t1.0-p1.0",
            {
                ("v1 to v3", "1.7B"): 13.50,
                ("v1 to v3", "8B"): 1.96,
                ("v1 to v3", "14B"): 5.94,
                ("v1 to v3", "mean"): 7.13,
                ("v4 and v5", "1.7B"): 18.49,
                ("v4 and v5", "8B"): 5.78,
                ("v4 and v5", "14B"): 10.20,
                ("v4 and v5", "mean"): 11.49,
            },
        ),
        (
            "t0.7-p0.9",
            {
                ("v1 to v3", "1.7B"): 5.21,
                ("v1 to v3", "8B"): 3.61,
                ("v1 to v3", "14B"): 2.31,
                ("v1 to v3", "mean"): 3.69,
                ("v4 and v5", "mean"): 3.73,
            },
        ),
    ],
)
def test_our_gains_stand_beside_those_of_their_revision(raw_study, tmp_path, decoding, expected):
    # What the study compares by itself has no influence: the paper's headline is over its three baselines.
    raw_study["compare"] = {"target": "justrl", "baselines": ["grpo"]}
    sizes = ("1.7B", "8B", "14B")
    table, against = tabulated(raw_study, tmp_path, sizes=sizes, decoding=decoding)
    found = {(gain.revision, gain.size): gain for gain in against.gains}
    # Stated to 0.01.
    assert {key: gain.paper for key, gain in found.items()} == pytest.approx(expected, abs=0.005)
    for (revision, where), gain in found.items():
        method = "stapo" if revision == "v4 and v5" else "stapo-v2"
        assert gain.title == METHODS[method].title
        values = {
            size: 100 * (row[method] / max(row[name] for name in BASELINES) - 1)
            for size, row in table.values.items()
        }
        ours = sum(values.values()) / 3 if where == "mean" else values[where]
        assert gain.ours == pytest.approx(ours)
    text = render(table, "md", against)
    last = against.gains[-1]
    line = f"| v4 and v5 | {last.title} | mean | {last.ours:+.2f} | {last.paper:+.2f} |"
    assert line in text


def test_another_model_of_the_size_is_not_the_papers(raw_study, tmp_path):
    raw_study["models"]["8B"] = {"hub": "somebody/else-8B", "revision": "main"}
    _, against = tabulated(raw_study, tmp_path, sizes=("8B",))
    assert (against.cells, against.gains) == ([], [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper", []),
        ("ablation-v3", ["v1 to v3 .* three sizes"]),
        (
            "ablation-v5",
            ["v4 and v5 .* q is swept", "v4 and v5 .* over q", "v4 and v5 .* collapse"],
        ),
        ("sensitivity-v3", ["v1 to v3 .* 7.2", "v1 to v3 .* 11.6"]),
        ("sensitivity-v5", ["v4 and v5 .* insensitive", "v4 and v5 .* q is swept"]),
    ],
)
def test_each_study_of_the_paper_shows_the_claims_of_its_revision(name, expected):
    found = claims_of(read_study(STUDIES / f"{name}.yaml"))
    assert len(found) == len(expected)
    for line, pattern in zip(found, expected, strict=True):
        assert re.search(pattern, line)


def test_a_name_of_the_papers_with_another_base_says_what_it_is(raw_study, tmp_path):
    raw_study["methods"] = {"stapo-v2": {"base": "justrl"}}
    _, against = tabulated(raw_study, tmp_path)
    assert {cell.changed for cell in against.cells if cell.title == "stapo-v2"} == {"as JustRL"}


def test_the_one_row_of_the_papers_table_that_does_not_add_up_is_named():
    rows = audit_rows()
    assert len(rows) == 24
    (odd,) = [row for row in rows if not row.follows]
    assert (odd.size, odd.method, odd.stated) == ("14B", "stapo-v2", 64.38)
    assert odd.recomputed == pytest.approx(64.905)
    assert "Table of v1 to v3 [from secondary copies that agree]: 23 of 24" in audit_text()


def test_headlines_of_a_revision_without_table_are_not_recomputed():
    for decoding, mean in (("t1.0-p1.0", 7.13), ("t0.7-p0.9", 3.71)):
        assert stated_headline("v1 to v3", decoding).mean == pytest.approx(mean, abs=0.005)
        assert stated_headline("v4 and v5", decoding) is None
        assert recomputed_headline("v4 and v5", decoding) is None


def test_the_printed_audit_names_revisions_and_how_sure_it_is():
    console = Console(width=250, file=io.StringIO())
    print_audit(console)
    text = console.file.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert lines
    assert all("[read in" in line or "[from secondary" in line for line in lines)
    stated = ("largely insensitive", "17.4 to 7.2", "P = 0.2433 %", "63.20", "18.49", "62.02")
    assert [said for said in stated if said not in text] == []
