"""The paper's own numbers, recomputed, and ours beside them: those of each revision."""

import pytest
from synthetic import tabulated, write_scores

from stapo.core.methods import BASELINES, METHODS
from stapo.suite.analysis.against_paper import compare_with_paper
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.main_rendering import render
from stapo.suite.analysis.tables.hyperparameters import make
from stapo.suite.reference import paper
from stapo.suite.repository import STUDIES
from stapo.suite.study import parse_study, read_study

SIX = paper()["benchmarks"]


def compared(raw, root, *, sizes=("1.7B",), benchmarks=SIX, decoding="t1.0-p1.0"):
    raw["benchmarks"] = {name: {"samples": 10} for name in benchmarks}
    raw["run"] |= {
        "models": [*sizes], "methods": [*BASELINES, "stapo", "stapo-v2"], "decodings": [decoding],
        "benchmarks": [*benchmarks],
    }  # fmt: skip
    study = parse_study(raw)
    assert study.compared() == (["stapo", "stapo-v2"], [*BASELINES])
    write_scores(root, study)
    table = tabulated(root, study)
    return table, compare_with_paper(table)


@pytest.mark.parametrize("all_six", [True, False])
def test_ours_stands_beside_the_papers_cell_of_its_revision(raw_study, tmp_path, all_six):
    names = SIX if all_six else ["aime24", "math500"]
    table, against = compared(raw_study, tmp_path, benchmarks=names, decoding="t0.7-p0.9")
    cells = {(cell.title, cell.what): cell for cell in against}
    # An average over other benchmarks than the paper's is another quantity.
    assert len(cells) == 4 * (7 if all_six else 2)
    assert {cell.revision for cell in against} == {"v1 to v3"}
    title = METHODS["stapo-v2"].title
    own = next(row for row in table.rows if row.method == "stapo-v2").cells["aime24"]
    assert (cells[title, "aime24"].ours, cells[title, "aime24"].paper) == (own, 16.04)
    text = render(table)
    assert f"| v1 to v3 | 1.7B | {title} | aime24 | {own.value:.2f}<br>[" in text
    assert f" | 16.04 | {own.value - 16.04:+.2f}<br>[" in text


def test_the_papers_study_is_as_the_paper_or_our_choice():
    table = make(Artefacts(read_study(STUDIES / "paper" / "paper.yaml")))
    found = {(row.name, row.methods): row for row in table.rows}
    assert found["learning_rate", "all"].source.startswith("as in the paper [read in")
    source = found["weight_decay", "all"].source
    assert source == "our choice: the paper does not state it; JustRL's script has 0.1"
    assert found["kl_coefficient", "GRPO"].ours == 0.04
    assert found["kl_coefficient", "GRPO"].source == "as in the paper [inferred]"
    assert not [row for row in found.values() if row.source.startswith("differs")]
    for name, stated in paper()["hyperparameters"]["methods"].items():
        method = METHODS[name]
        for key in {*stated} - {"confidence", "inferred"}:
            ours = {**vars(method), **method.effective}[key]
            assert stated[key] == ours, (name, key)


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        ("/home/me/my_rewards.py:a_b", "my_rewards.py:a_b"),
        ({"after": "the_answer"}, 'after "the_answer"'),
        ("last_number", "last number"),
    ],
)
def test_a_reward_is_shown_without_its_folder(raw_study, reward, shown):
    raw_study["training"] |= {"reward": reward, "reward_sha256": "0" * 64}
    table = make(Artefacts(parse_study(raw_study)))
    (row,) = (row for row in table.rows if row.name == "reward")
    assert [column.value(row) for column in table.columns][2] == shown
